"""Broken files, each in a separate folder; ids start with the name of the folder."""

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import write_deltalake

ROWS = 400
"""Rows of a truncated file."""


def documents(folder: Path, count: int = 2, first: int = 0) -> list[dict[str, Any]]:
    """Return good rows; ids differ from folder to folder."""
    numbers = range(first, first + count)
    return [{"_id": f"{folder.name}-{i}", "title": f"t{i}", "text": f"the text {i}"} for i in numbers]


def jsonl(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def random_rows(folder: Path, count: int) -> bytes:
    """Return rows that do not compress well, so that a truncated file keeps some of them."""
    random = Random(5)
    return jsonl([{"_id": f"{folder.name}-{i}", "text": f"{random.getrandbits(4096)}"} for i in range(count)])


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue())


def line(*lines: bytes) -> Callable[[Path], None]:
    """Write a JSONL file: a good row, the given lines, a good row. ``ID`` is replaced by the name of the folder."""

    def make(folder: Path) -> None:
        one, other = (jsonl([row]) for row in documents(folder))
        middle = b"".join(text.replace(b"ID", folder.name.encode()) + b"\n" for text in lines)
        (folder / "a.jsonl").write_bytes(one + middle + other)

    return make


def file(name: str, content: Callable[[Path], bytes]) -> Callable[[Path], None]:
    """Write one file."""
    return lambda folder: (folder / name).write_bytes(content(folder)) and None


def parquet(folder: Path, name: str, rows: list[dict[str, Any]] | dict[str, Any], **options: Any) -> Path:
    data = pa.table(rows) if isinstance(rows, dict) else pa.Table.from_pylist(rows)
    pq.write_table(data, folder / name, **options)
    return folder / name


def two_parquet(rows: Callable[[Path], Any]) -> Callable[[Path], None]:
    """Write a good Parquet file and a second one after it."""

    def make(folder: Path) -> None:
        parquet(folder, "a.parquet", documents(folder))
        parquet(folder, "b.parquet", rows(folder))

    return make


def cut(path: Path, keep: float) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])


def torn_small_parquet(folder: Path) -> None:
    parquet(folder, "a.parquet", documents(folder))
    cut(parquet(folder, "b.parquet", documents(folder, first=2)), 0.9)


def torn_first_parquet(folder: Path) -> None:
    cut(parquet(folder, "a.parquet", documents(folder)), 0.9)


def torn_large_parquet(folder: Path) -> None:
    parquet(folder, "a.parquet", documents(folder))
    noise = Random(6).randbytes(2_000_000).hex()
    cut(parquet(folder, "b.parquet", [{"_id": "x", "text": noise}]), 0.9)


def corrupt_page(folder: Path) -> None:
    rows = [{"_id": f"{folder.name}-{i}", "text": f"text {i}"} for i in range(200)]
    options = {"row_group_size": 100, "use_dictionary": False, "write_page_checksum": True}
    path = parquet(folder, "a.parquet", rows, **options)
    # The last byte before the statistics of the text column of the second row group is in its data page.
    column = pq.ParquetFile(path).metadata.row_group(1).column(1)
    data = bytearray(path.read_bytes())
    data[column.data_page_offset + column.total_compressed_size // 2] ^= 0xFF
    path.write_bytes(data)


def invalid_utf8_parquet(folder: Path) -> dict[str, Any]:
    ids = [f"{folder.name}-{i}" for i in range(2, 4)]
    return {"_id": ids, "text": pa.array([b"fine", b"caf\xe9"]).view(pa.string())}


def folder_of_parts(folder: Path) -> None:
    (folder / "day.parquet").mkdir()
    parquet(folder / "day.parquet", "part-0.parquet", documents(folder))
    (folder / "day.parquet" / "_SUCCESS").touch()
    (folder / "day.parquet" / "_metadata").write_bytes(b"PAR1")
    (folder / "day.parquet" / ".part-0.parquet.crc").write_bytes(b"crc\0")


def empty_folder(folder: Path) -> None:
    (folder / "day.parquet").mkdir()


def only_markers(folder: Path) -> None:
    (folder / "_SUCCESS").touch()
    (folder / ".hidden.jsonl").write_bytes(jsonl(documents(folder)))


def empty_files(folder: Path) -> None:
    for name in ("a.jsonl", "b.jsonl.gz", "c.csv", "d.parquet", "e.jsonl.zst"):
        (folder / name).touch()
    (folder / "f.jsonl").write_bytes(jsonl(documents(folder)))


def parquet_without_rows(folder: Path) -> None:
    parquet(folder, "a.parquet", {"_id": pa.array([], pa.string()), "text": pa.array([], pa.string())})
    (folder / "b.jsonl").write_bytes(jsonl(documents(folder)))


def duplicates(folder: Path) -> None:
    rows = documents(folder)
    (folder / "a.jsonl").write_bytes(jsonl(rows))
    (folder / "b.jsonl").write_bytes(jsonl([{"_id": rows[0]["_id"], "text": "another text"}]))


def delta(folder: Path) -> None:
    write_deltalake(folder / "delta", pa.Table.from_pylist(documents(folder)))


def delta_with_feature(folder: Path) -> None:
    delta(folder)
    log = folder / "delta" / "_delta_log" / f"{0:020d}.json"
    actions = [json.loads(text) for text in log.read_text().splitlines()]
    features = ["a feature of tomorrow"]
    for action in actions:
        if "protocol" in action:
            action["protocol"] |= {"minReaderVersion": 3, "minWriterVersion": 7}
            action["protocol"] |= {"readerFeatures": features, "writerFeatures": features}
    log.write_text("".join(json.dumps(action) + "\n" for action in actions))


def delta_without_file(folder: Path) -> None:
    delta(folder)
    next((folder / "delta").glob("*.parquet")).unlink()


def delta_of_other_size(folder: Path) -> None:
    delta(folder)
    cut(next((folder / "delta").glob("*.parquet")), 0.5)


def saved_dataset(folder: Path, batches: int = 3) -> Path:
    """Write a folder like ``save_to_disk`` of Hugging Face datasets."""
    rows = pa.Table.from_pylist(documents(folder, 50 * batches)).combine_chunks()
    path = folder / "data-00000-of-00001.arrow"
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows, max_chunksize=50)
    state = {"_data_files": [{"filename": path.name}], "_fingerprint": "f", "_indices_data_files": None}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text("{}")
    return path


def cut_dataset(folder: Path) -> None:
    cut(saved_dataset(folder), 0.8)


def dataset_without_end(folder: Path) -> None:
    path = saved_dataset(folder)
    path.write_bytes(path.read_bytes()[:-8])


def dataset_without_file(folder: Path) -> None:
    saved_dataset(folder).unlink()


def csv(*rows: bytes, header: bytes = b"_id,title,text") -> Callable[[Path], bytes]:
    """Return a CSV table: a good row, the given rows, a good row."""

    def content(folder: Path) -> bytes:
        name = folder.name.encode()
        return b"\n".join(
            [header, name + b"-0,t,x", *(row.replace(b"ID", name) for row in rows), name + b"-1,t,x", b""]
        )

    return content


def file_without_id(folder: Path) -> None:
    parquet(folder, "a.parquet", {"text": ["x"]})


def dangling_link(folder: Path) -> None:
    (folder / "a.jsonl").symlink_to("absent")
