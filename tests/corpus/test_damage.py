"""Files that are cut, or changed in one bit, at random places: what is not read is counted, or the job is refused."""

import bz2
import csv
import gzip
import io
import json
import lzma
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lsr_prod.config import SourceSettings
from lsr_prod.corpus.filelist import cut_files
from lsr_prod.corpus.listing import resolve_source
from lsr_prod.corpus.pinned_file import WHOLE, Slice, SourceFile
from lsr_prod.corpus.read import Reader
from lsr_prod.errors import ConfigError, SourceError

_ROWS = 300


def documents() -> list[dict[str, str]]:
    random = Random(3)
    return [{"_id": f"d{i}", "text": f"text {random.getrandbits(600)}"} for i in range(_ROWS)]


def json_lines() -> bytes:
    return "".join(json.dumps(row) + "\n" for row in documents()).encode()


def arrow_codec(data: bytes, codec: str) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


def zipped(files: dict[str, bytes]) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.mkdir("folder/")
        for name, data in files.items():
            archive.writestr(name, data)
    return sink.getvalue()


def members(compress: Callable[[bytes], bytes]) -> bytes:
    lines = json_lines().splitlines(keepends=True)
    return b"".join(compress(b"".join(lines[i : i + 50])) for i in range(0, _ROWS, 50))


def parquet() -> bytes:
    sink = io.BytesIO()
    options = {"row_group_size": 60, "write_page_checksum": True, "use_dictionary": False}
    pq.write_table(pa.Table.from_pylist(documents()), sink, **options)
    return sink.getvalue()


def arrow() -> bytes:
    sink, table = io.BytesIO(), pa.Table.from_pylist(documents())
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table, max_chunksize=50)
    return sink.getvalue()


def table_of_csv(ending: str = "\n", quoting: int = csv.QUOTE_ALL) -> bytes:
    written = io.StringIO()
    writer = csv.writer(written, lineterminator=ending, quoting=quoting)
    writer.writerow(["_id", "text"])
    writer.writerows((row["_id"], row["text"] + ',\n "x"') for row in documents())
    return written.getvalue().encode()


FILES: dict[str, Callable[[], bytes]] = {
    "a.jsonl.gz": lambda: gzip.compress(json_lines()),
    "members.jsonl.gz": lambda: members(gzip.compress),
    "a.jsonl.zst": lambda: arrow_codec(json_lines(), "zstd"),
    "a.jsonl.bz2": lambda: bz2.compress(json_lines()),
    "members.jsonl.xz": lambda: members(lzma.compress),
    "a.jsonl.lz4": lambda: arrow_codec(json_lines(), "lz4"),
    "a.csv.zip": lambda: zipped({"a.csv": table_of_csv()}),
    "a.parquet": parquet,
    "a.arrow": arrow,
    "a.csv": table_of_csv,
    "b.csv": lambda: table_of_csv("\r\n", csv.QUOTE_MINIMAL),
    "a.csv.gz": lambda: gzip.compress(table_of_csv()),
}


def whole_slice(path: Path) -> Slice:
    name = path.name.partition(".")[2]
    file = SourceFile(
        str(path.parent), path.name, name, path.stat().st_size, "delta:x", mtime_ns=path.stat().st_mtime_ns
    )
    return Slice(file, 0, 0, WHOLE if name == "parquet" else file.size, 0, file.size)


def read(path: Path, on_damage: str) -> list[dict[str, Any]]:
    source = SourceSettings(paths=[str(path)], text_fields=["text"], stored_fields=[], on_damage=on_damage)
    return [row for table in Reader(source, 4, {}).read(whole_slice(path)) for row in table.to_pylist()]


def damage_of(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row["reason"] in ("damaged_file", "damaged_row")]


def check_refusal(path: Path, damage: list[dict[str, Any]]) -> None:
    """Check that damage, and nothing else, is refused by default."""
    assert all(0 <= (row["unread_bytes"] or 0) <= path.stat().st_size for row in damage)
    if damage:
        with pytest.raises(SourceError, match=r"is damaged: .* rows before it were read"):
            read(path, "fail")
    else:
        read(path, "fail")


@pytest.mark.parametrize("name", FILES)
def test_whole_file_is_read_without_damage(name: str, tmp_path: Path):
    path = tmp_path / name
    path.write_bytes(FILES[name]())
    rows = read(path, "fail")
    assert [row["doc_id"] for row in rows if row["reason"] is None] == [row["_id"] for row in documents()]


@pytest.mark.parametrize("name", FILES)
def test_cut_file_is_counted_or_refused(name: str, tmp_path: Path):
    random, data, path = Random(5), FILES[name](), tmp_path / name
    for _ in range(8):
        path.write_bytes(data[: random.randrange(1, len(data))])
        damage = damage_of(read(path, "skip"))
        if not damage:  # between two rows or members: nothing shows that more was written
            assert name.endswith(".csv") or name.startswith("members")
        check_refusal(path, damage)


@pytest.mark.parametrize("name", FILES)
def test_flipped_bit_is_counted_or_refused(name: str, tmp_path: Path):
    random, data, path = Random(6), FILES[name](), tmp_path / name
    for _ in range(15):
        changed = bytearray(data)
        changed[random.randrange(len(data))] ^= 1 << random.randrange(8)
        path.write_bytes(changed)
        rows = read(path, "skip")
        good = sum(row["reason"] is None for row in rows)
        damage = damage_of(rows)
        check_refusal(path, damage)
        if good < _ROWS:
            bad, unread = len(rows) - good, sum(row["unread_bytes"] or 0 for row in damage)
            assert bad
            # Arrow writes zstd and lz4 without a checksum: a flipped bit may change texts, and merge lines.
            assert name.endswith((".zst", ".lz4")) or bad + unread / len(data) * _ROWS >= 0.9 * (_ROWS - good) - 2


@pytest.mark.parametrize("ending", [b"garbage", b"\x1f\x8b", b"\0\0\0x"])
@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.bz2", "members.jsonl.xz"])
def test_garbage_behind_the_members_is_unread(name: str, ending: bytes, tmp_path: Path):
    path = tmp_path / name
    path.write_bytes(FILES[name]() + ending)
    *rows, damage = read(path, "skip")
    assert len(rows) == _ROWS
    assert damage["reason"] == "damaged_file"
    assert 0 <= (damage["unread_bytes"] or 0) <= len(ending)


def test_padding_and_empty_members_of_gzip_are_no_damage(tmp_path: Path):
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b"") + gzip.compress(json_lines()) + b"\0" * 40_000 + gzip.compress(b"") + b"\0")
    assert len(read(path, "fail")) == _ROWS


def test_bytes_under_a_wrong_checksum_are_unread(tmp_path: Path):
    one, two = gzip.compress(json_lines()), bytearray(gzip.compress(json_lines()))
    two[-6] ^= 1
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(one + two)
    damage = read(path, "skip")[-1]
    assert damage["unread_bytes"] == len(two)


def test_bytes_behind_the_end_of_an_arrow_stream_are_damage(tmp_path: Path):
    path = tmp_path / "a.arrow"
    path.write_bytes(arrow() + arrow())
    *rows, damage = read(path, "skip")
    assert len(rows) == _ROWS
    assert "something follows the end mark" in damage["detail"]
    assert damage["unread_bytes"] >= len(arrow())


@pytest.mark.long
@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.csv.gz"])
def test_line_of_hundreds_of_megabytes_needs_little_memory(name: str, tmp_path: Path):
    """The line is a bad row; a small file holds it, because it compresses a thousand times."""
    packer, path = zlib.compressobj(9, zlib.DEFLATED, 31), tmp_path / name
    opening, closing = (b'{"_id": "a", "text": "', b'"}\n') if "jsonl" in name else (b'_id,text\na,"', b'"\n')
    good = b'{"_id": "b", "text": "x"}\n' if "jsonl" in name else b"b,x\n"
    with path.open("wb") as file:
        file.write(packer.compress(opening))
        for _ in range(300):
            file.write(packer.compress(b"x" * 1_000_000))
        file.write(packer.compress(closing + good) + packer.flush())
    assert path.stat().st_size < 1_000_000
    code = (
        "import resource, sys; from pathlib import Path; from tests.corpus.test_damage import read\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "rows = read(Path(sys.argv[1]), 'skip')\n"
        "after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "print([row['reason'] for row in rows], after - before)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    reasons, _, kilobytes = done.stdout.strip().rpartition(" ")
    expected = "row_too_long" if "jsonl" in name else "damaged_row"
    assert reasons == f"['{expected}', None]"
    assert int(kilobytes) < 150_000


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_frames_that_were_joined_are_read(codec: str, tmp_path: Path):
    path = tmp_path / f"a.jsonl.{codec.replace('zstd', 'zst')}"
    path.write_bytes(members(lambda data: arrow_codec(data, codec)))
    assert len(read(path, "fail")) == _ROWS


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (zipped({"a.jsonl": b"{}", "b.jsonl": b"{}"}), "the archive holds 2 files; unpack it"),
        (zipped({}), "the archive holds 0 files"),
        (b"no archive", "the archive cannot be read (File is not a zip file)"),
        (zipped({"a": b"{}"}).replace(b"PK\x01\x02\x14\x03\x14\0\0", b"PK\x01\x02\x14\x03\x14\0\1"), "password"),
    ],
)
def test_archive_of_other_than_one_plain_file_is_refused(data: bytes, problem: str, tmp_path: Path):
    path = tmp_path / "a.jsonl.zip"
    path.write_bytes(data)
    (damage,) = read(path, "skip")
    assert problem in damage["detail"]
    assert damage["unread_bytes"] == len(data)


def test_parquet_file_with_a_type_that_arrow_lacks_is_refused_or_counted(tmp_path: Path):
    path = tmp_path / "a.parquet"
    pl.DataFrame({"_id": ["a"], "text": ["x"], "n": pl.Series([1], dtype=pl.Int128)}).write_parquet(path)
    source = SourceSettings(paths=[str(path)])
    with pytest.raises(
        ConfigError, match=r"^source\.paths: \S*a.parquet is not a readable parquet file \(Integers with"
    ):
        list(cut_files(enumerate(resolve_source(source, {})), source, 1_000_000, {}))
    (damage,) = read(path, "skip")
    assert (damage["reason"], damage["unread_bytes"]) == ("damaged_file", path.stat().st_size)
    assert "Integers with more than 64 bits" in damage["detail"]
    with pytest.raises(SourceError, match=r"a\.parquet is damaged: Integers with more than 64 bits"):
        read(path, "fail")


@pytest.mark.parametrize(
    ("ending", "compress"), [("bz2", partial(bz2.compress, compresslevel=1)), ("xz", lzma.compress)]
)
def test_all_bytes_of_a_damaged_member_are_unread(ending: str, compress: Callable[[bytes], bytes], tmp_path: Path):
    """The decoder does not say whether a checksum is wrong, which covers rows that were read before."""
    random, path = Random(4), tmp_path / f"a.jsonl.{ending}"
    lines = [json.dumps({"_id": f"e{i}", "text": f"{random.getrandbits(4000)}"}) + "\n" for i in range(1000)]
    first, damaged = compress(json_lines()), bytearray(compress("".join(lines).encode()))
    damaged[-2000] ^= 1
    path.write_bytes(first + damaged)
    *rows, damage = read(path, "skip")
    assert len(rows) > _ROWS
    assert damage["unread_bytes"] == len(damaged)


def test_bytes_under_a_wrong_checksum_of_lz4_are_unread(tmp_path: Path):
    data, path = bytearray(arrow_codec(json_lines(), "lz4")), tmp_path / "a.jsonl.lz4"
    data[4] |= 4  # a checksum of the content follows the blocks: here a wrong one
    data += b"abcd"
    found = []
    for checksum_of_the_header in range(256):
        data[6] = checksum_of_the_header
        path.write_bytes(data)
        damage = read(path, "skip")[-1]
        if "headerChecksum_invalid" not in damage["detail"]:
            found.append((damage["unread_bytes"], "contentChecksum_invalid" in damage["detail"]))
    assert found == [(len(data), True)]
