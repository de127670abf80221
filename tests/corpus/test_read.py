import gzip
import io
import json
import os
import platform
import resource
import shutil
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lsr_prod.config import EncodeSettings, SourceSettings
from lsr_prod.corpus.listing import resolve_source
from lsr_prod.corpus.pinned_file import Slice, SourceFile
from lsr_prod.corpus.read import Reader
from lsr_prod.encoding.plans.encode_plan import PlanInputs, make_plan
from lsr_prod.errors import SourceError
from lsr_prod.storage import Store

ENCODE = EncodeSettings(bundle="b", table="t", buckets=4)


def read_all(source: SourceSettings, encode: EncodeSettings = ENCODE, keep: frozenset[int] | None = None) -> list[dict]:
    """Read the rows of every slice."""
    files = tuple(resolve_source(source, {}))
    plan = make_plan(files, PlanInputs(source, encode, "b", {}))
    reader = Reader(source, encode.buckets, {}, keep)
    rows: list[dict] = []
    for piece in plan.slices():
        rows += [row for table in reader.read(piece) for row in table.to_pylist()]
    return rows


def test_every_kind_of_bad_line_has_its_reason(tmp_path: Path):
    corpus = tmp_path / "c.jsonl"
    corpus.write_bytes(
        b"\n".join(
            [
                b'{"_id": "good", "title": "T", "text": "x"}',
                b'{"_id": "a", "text": ',
                b'["_id"]',
                b'{"_id": "b", "text": "\xff\xfe"}',
                b'{"text": "no id"}',
                b'{"_id": "", "text": "empty id"}',
                b'{"_id": 7.5, "text": "fraction"}',
                b'{"_id": "c", "text": " \\n "}',
                b'{"_id": "d", "text": "\\ud800"}',
                json.dumps({"_id": "e", "text": "y" * 101}).encode(),
                json.dumps({"_id": "f", "text": "y" * 3_000_000}).encode(),
                b"[" * 100_000,
                b'{"_id": "null", "title": null, "text": "last"}',
            ]
        )
    )
    source = SourceSettings(paths=[str(corpus)], max_text_bytes=100)
    rows = read_all(source)
    assert [row["reason"] for row in rows] == [
        None, "broken_json", "not_an_object", "invalid_utf8", "missing_id", "missing_id", "wrong_type", "empty_text",
        "invalid_utf8", "text_too_long", "row_too_long", "broken_json", None,
    ]  # fmt: skip
    assert rows[0]["text"] == "T x"
    assert rows[0]["stored.title"] == "T"
    assert rows[-1]["text"] == "last"
    assert rows[-1]["stored.title"] is None
    assert rows[3]["raw"] == '{"_id": "b", "text": "��"}'
    assert max(len(row["raw"] or "") for row in rows) == 4096


def test_all_formats_give_the_same_documents_for_any_slices(tmp_path: Path):
    documents = [{"_id": f"d{i}", "title": f"t{i}", "text": "word " * (i % 50 + 1)} for i in range(3000)]
    text = "".join(json.dumps(document) + "\n" for document in documents).encode()
    (tmp_path / "c.jsonl").write_bytes(text)
    (tmp_path / "c.jsonl.gz").write_bytes(gzip.compress(text))
    pq.write_table(pa.Table.from_pylist(documents), tmp_path / "c.parquet", row_group_size=700)
    expected = [(document["_id"], f"{document['title']} {document['text']}") for document in documents]
    for name in ("c.jsonl", "c.jsonl.gz", "c.parquet"):
        rows = read_all(SourceSettings(paths=[str(tmp_path / name)]))
        assert [(row["doc_id"], row["text"]) for row in rows] == expected, name
        assert [row["position"] for row in rows] == sorted({row["position"] for row in rows})


def test_invalid_utf8_in_parquet_is_quarantined(tmp_path: Path):
    text = pa.array([b"good", b"\xff"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"_id": ["a", "b"], "text": text}), tmp_path / "c.parquet")
    rows = read_all(SourceSettings(paths=[str(tmp_path / "c.parquet")]))
    assert [row["reason"] for row in rows] == [None, "invalid_utf8"]
    assert rows[1]["doc_id"] == "b"


def settled(path: Path) -> None:
    """Date the last write back, as if no write could have the same time any more."""
    os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns - 10_000_000_000))


def whole(file: SourceFile) -> Slice:
    return Slice(file, 0, 0, file.size, 0, file.size)


def pinned(path: Path) -> tuple[SourceSettings, SourceFile]:
    source = SourceSettings(paths=[str(path)])
    (file,) = resolve_source(source, {})
    return source, file


@pytest.mark.parametrize("age_s", [0, 10])
@pytest.mark.parametrize("way", ["in place", "renamed", "renamed with the same time"])
def test_file_changed_to_the_same_size_after_planning_is_rejected(tmp_path: Path, age_s: int, way: str):
    path = tmp_path / "c.jsonl"
    path.write_text('{"_id": "a", "text": "x"}\n')
    if age_s:
        settled(path)
    source, file = pinned(path)
    assert bool(file.mtime_ns) == bool(age_s)
    times = (path.stat().st_atime_ns, path.stat().st_mtime_ns)
    changed = path if way == "in place" else tmp_path / "new"
    changed.write_text('{"_id": "a", "text": "y"}\n')
    if way == "renamed with the same time":
        os.utime(changed, ns=times)
    changed.rename(path)
    with pytest.raises(SourceError, match=r"c\.jsonl has changed since it was pinned \(it has another content"):
        list(Reader(source, 4, {}).read(whole(file)))


@pytest.mark.parametrize("age_s", [0, 10])
def test_file_changed_in_place_while_it_is_read_is_rejected(tmp_path: Path, age_s: int):
    path = tmp_path / "c.jsonl"
    lines = [json.dumps({"_id": f"{i:06}", "text": "x" * 2000}) for i in range(5000)]
    path.write_text("\n".join(lines))
    if age_s:
        settled(path)
    source, file = pinned(path)
    tables = Reader(source, 4, {}).read(whole(file))
    assert next(tables).num_rows
    with path.open("r+b") as writer:
        writer.seek(-10, os.SEEK_END)
        writer.write(b"y")
    with pytest.raises(SourceError, match=r"c\.jsonl has changed since it was pinned \(it was written while"):
        list(tables)


def test_file_replaced_by_rename_while_it_is_read_keeps_the_pinned_rows(tmp_path: Path):
    path = tmp_path / "c.jsonl"
    path.write_text("\n".join(json.dumps({"_id": str(i), "text": "x" * 2000}) for i in range(5000)))
    source, file = pinned(path)
    tables = Reader(source, 4, {}).read(whole(file))
    rows = next(tables).num_rows
    (tmp_path / "new").write_bytes(path.read_bytes().replace(b"x", b"y"))
    (tmp_path / "new").rename(path)
    for table in tables:
        rows += table.num_rows
        assert all("y" not in text for text in table["text"].to_pylist())
    assert rows == 5000
    with pytest.raises(SourceError, match="has changed since it was pinned"):
        list(Reader(source, 4, {}).read(whole(file)))


def test_copy_and_touched_file_with_the_pinned_content_are_read(tmp_path: Path):
    path = tmp_path / "c.jsonl"
    path.write_text('{"_id": "a", "text": "x"}\n')
    settled(path)
    source, file = pinned(path)
    copy = tmp_path / "copy"
    shutil.copy2(path, copy)
    copy.rename(path)
    (table,) = Reader(source, 4, {}).read(whole(file))
    path.touch()
    assert next(Reader(source, 4, {}).read(whole(file))) == table


@pytest.mark.parametrize("name", ["c.jsonl", "c.jsonl.gz", "c.parquet"])
def test_object_replaced_while_it_is_read_is_rejected(tmp_path: Path, s3_options: dict[str, str], name: str):
    documents = [{"_id": str(i), "text": Random(i).randbytes(400).hex()} for i in range(4000)]

    def content(texts: list[dict]) -> bytes:
        if name.endswith("parquet"):
            sink = pa.BufferOutputStream()
            pq.write_table(pa.Table.from_pylist(texts), sink, row_group_size=100, compression="none")
            return sink.getvalue().to_pybytes()
        text = "".join(json.dumps(document) + "\n" for document in texts).encode()
        return gzip.compress(text) if name.endswith("gz") else text

    store = Store(f"s3://lsr/{tmp_path.name}", s3_options)
    store.put_new(name, content(documents))
    source = SourceSettings(paths=[f"{store.uri}/{name}"])
    (file,) = resolve_source(source, s3_options)
    piece = Slice(file, 0, 0, -1 if name.endswith("parquet") else file.size, 0, file.size)
    tables = Reader(source, 4, s3_options).read(piece)
    assert next(tables).num_rows < 4000
    store.delete(name)
    store.put_new(name, content(documents[::-1]))
    message = rf"s3://lsr/.*/{name} has changed since it was pinned .*run the job again"
    with pytest.raises(SourceError, match=message):
        list(tables)
    with pytest.raises(SourceError, match=message):
        next(Reader(source, 4, s3_options).read(piece))
    store.delete(name)
    with pytest.raises(SourceError, match="was deleted since it was pinned"):
        next(Reader(source, 4, s3_options).read(piece))


def test_file_changed_after_planning_is_rejected(tmp_path: Path):
    (tmp_path / "c.jsonl").write_text('{"_id": "a", "text": "x"}\n')
    source = SourceSettings(paths=[str(tmp_path / "c.jsonl")])
    files = tuple(resolve_source(source, {}))
    (tmp_path / "c.jsonl").write_text('{"_id": "a", "text": "xy"}\n')
    with pytest.raises(SourceError, match="has changed since it was pinned"):
        list(Reader(source, 4, {}).read(Slice(files[0], 0, 0, files[0].size, 0, files[0].size)))


@pytest.mark.parametrize("name", ["c.jsonl.gz", "c.jsonl.zst"])
def test_truncated_file_keeps_earlier_rows_and_adds_one_bad_row(tmp_path: Path, name: str):
    random = Random(7)
    data = b"".join(b'{"_id": "%d", "text": "%d"}\n' % (i, random.getrandbits(200)) for i in range(20_000))
    packed = gzip.compress(data) if name.endswith("gz") else zstd(data)
    (tmp_path / name).write_bytes(packed[: len(packed) // 2])
    *good, damage = read_all(SourceSettings(paths=[str(tmp_path / name)], on_damage="skip"))
    assert [row["doc_id"] for row in good] == [str(i) for i in range(len(good))]
    assert len(good) > 7000
    assert damage["reason"] == "damaged_file"
    assert damage["source"] == str(tmp_path / name)
    assert damage["detail"].endswith(f"after {len(good)} rows")


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("name", ["c.jsonl", "c.jsonl.gz", "c.jsonl.zst", "c.csv", "c.parquet", "c.arrow"])
@pytest.mark.parametrize("error", [OSError(5, "input/output error"), OSError("no errno")])
def test_disk_failure_raises_and_makes_no_bad_row(
    tmp_path: Path, name: str, error: OSError, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / name).write_bytes(b"x" * 100)
    found = (tmp_path / name).stat()
    file = SourceFile(str(tmp_path), name, name[2:], 100, "tag", mtime_ns=found.st_mtime_ns, inode=found.st_ino)

    class Failing(io.FileIO):
        def readinto(self, _: object) -> int:
            raise error

    monkeypatch.setattr(Store, "open_reader", lambda *_, **__: Failing(tmp_path / name))
    source = SourceSettings(paths=["c"])
    with pytest.raises(SourceError, match=f"{name} cannot be read for now"):
        list(Reader(source, 4, {}).read(Slice(file, 0, 0, 100, 0, 100)))


def test_missing_file_is_reported_with_the_node(tmp_path: Path):
    file = SourceFile(str(tmp_path), "c.jsonl", "jsonl", 100, "tag")
    with pytest.raises(SourceError, match=rf"c\.jsonl is not on node {platform.node()}; restore it .*every node sees"):
        list(Reader(SourceSettings(paths=["c"]), 4, {}).read(Slice(file, 0, 0, 100, 0, 100)))


@pytest.mark.parametrize("name", ["c.jsonl", "c.csv", "c.parquet"])
def test_readers_of_disjoint_cells_yield_every_row_once(tmp_path: Path, name: str):
    documents = [{"_id": f"d{i}" if i % 9 else "", "text": "x" if i % 7 else ""} for i in range(1000)]
    if name.endswith("parquet"):
        pq.write_table(pa.Table.from_pylist(documents), tmp_path / name)
    elif name.endswith("csv"):
        lines = ["_id,text", *(f"{document['_id']},{document['text']}" for document in documents), '"never closed']
        (tmp_path / name).write_text("\n".join(lines))
    else:
        (tmp_path / name).write_text("\n".join([*map(json.dumps, documents), "{"]))
    source = SourceSettings(paths=[str(tmp_path / name)], on_damage="skip")
    every = read_all(source)
    parts = [read_all(source, keep=keep) for keep in (frozenset({0, 3}), frozenset({1}), frozenset({2}))]
    assert all(parts)
    assert sorted((row for part in parts for row in part), key=lambda row: row["position"]) == every


def test_compressed_and_empty_files_are_read(tmp_path: Path):
    for name in ("a.jsonl", "b.jsonl.gz", "c.jsonl.zst", "d.csv", "e.parquet", "f.tsv.gz"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "g.jsonl.zst").write_bytes(zstd(b'\xef\xbb\xbf{"_id": "a", "text": "x"}\n\n'))
    assert [row["doc_id"] for row in read_all(SourceSettings(paths=[str(tmp_path)]))] == ["a"]
    source = SourceSettings(paths=[str(tmp_path)])
    for i, file in enumerate(resolve_source(source, {})):
        if file.size == 0:
            (table,) = Reader(source, 4, {}).read(Slice(file, i, 0, 0, 0, 0))
            assert table.num_rows == 0


def test_line_of_a_gigabyte_is_never_in_memory(tmp_path: Path):
    path = tmp_path / "c.jsonl.zst"
    with pa.CompressedOutputStream(str(path), "zstd") as stream:
        stream.write(b'{"_id": "huge", "text": "')
        for _ in range(1 << 10):
            stream.write(b"y" * (1 << 20))
        stream.write(b'"}\n{"_id": "a", "text": "x"}\n')
    source = SourceSettings(paths=[str(path)])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rows = read_all(source)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert [(row["reason"], row["doc_id"]) for row in rows] == [("row_too_long", None), (None, "a")]
    assert grown < 200  # MB; the limit of a line is 17 MB
