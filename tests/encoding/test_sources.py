import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from lsr_prod.config import SourceSettings
from lsr_prod.encoding.plan import Slice
from lsr_prod.encoding.read import Reader
from lsr_prod.encoding.rows import RECEIPT
from lsr_prod.encoding.sources import SourceFile, resolve_source
from lsr_prod.errors import ConfigError
from lsr_prod.formats.digest import digest_path


def resolve(*paths: Path | str, **source: Any) -> tuple[SourceFile, ...]:
    return tuple(resolve_source(SourceSettings(paths=[str(path) for path in paths], **source), {}))


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f'{{"_id": "{name}"}}\n')


def names(folder: Path, files: tuple[SourceFile, ...]) -> list[str]:
    return [str(Path(file.location).relative_to(folder)) for file in files]


def test_paths_keep_their_order_and_names_inside_one_are_sorted(tmp_path: Path):
    touch(tmp_path, "z/2.jsonl", "z/10.jsonl", "z/1.jsonl", "z/deep/0.jsonl", "a.jsonl", "b.ndjson")
    assert names(tmp_path, resolve(tmp_path / "z", tmp_path / "[ab].*json*")) == [
        "z/1.jsonl", "z/10.jsonl", "z/2.jsonl", "z/deep/0.jsonl", "a.jsonl", "b.ndjson",
    ]  # fmt: skip
    assert names(tmp_path, resolve(tmp_path / "**" / "*.jsonl")) == [
        "a.jsonl", "z/1.jsonl", "z/10.jsonl", "z/2.jsonl", "z/deep/0.jsonl",
    ]  # fmt: skip


def test_a_file_that_several_paths_name_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    touch(tmp_path, "c/a.jsonl", "c/b.jsonl")
    monkeypatch.chdir(tmp_path)
    files = resolve("c/b.jsonl", tmp_path / "c" / "*.jsonl", "./c", tmp_path / "c" / "b.jsonl")
    assert names(tmp_path, files) == ["c/b.jsonl", "c/a.jsonl"]


def test_a_file_is_pinned_by_size_and_sha256_and_not_by_its_folder(tmp_path: Path):
    touch(tmp_path, "here/a.jsonl", "there/a.jsonl")
    here, there = tmp_path / "here" / "a.jsonl", tmp_path / "there" / "a.jsonl"
    there.write_bytes(here.read_bytes())
    (one,), (other,) = resolve(here), resolve(there)
    assert (one.size, one.tag, one.format) == (here.stat().st_size, digest_path(here), "jsonl")
    assert one.location != other.location
    assert one.identity() == other.identity()
    there.write_bytes(here.read_bytes().replace(b"here", b"HERE"))
    assert resolve(there)[0].identity() != one.identity()


@pytest.mark.parametrize(
    ("name", "file_format"),
    [("a.PARQUET", "parquet"), ("a.ndjson", "jsonl"), ("a.jsonl.gz", "jsonl.gz"), ("a.NDJSON.gz", "jsonl.gz")],
)
def test_the_ending_tells_the_format_in_any_case(tmp_path: Path, name: str, file_format: str):
    touch(tmp_path, name)
    assert resolve(tmp_path / name)[0].format == file_format


def test_a_format_that_is_set_beats_the_ending(tmp_path: Path):
    touch(tmp_path, "dump.txt", "dump.gz")
    assert [file.format for file in resolve(tmp_path, format="jsonl")] == ["jsonl.gz", "jsonl"]
    assert resolve(tmp_path / "dump.txt", format="parquet")[0].format == "parquet"


@pytest.mark.parametrize("pattern", ["day1.parquet", "*.parquet", "**/*.parquet", ""])
def test_a_folder_named_like_a_file_is_read_as_its_files(tmp_path: Path, pattern: str):
    touch(tmp_path, "day1.parquet/part-0.parquet", "day1.parquet/part-1.parquet", "day1.parquet/_SUCCESS")
    found = names(tmp_path, resolve(tmp_path / pattern))
    assert found == ["day1.parquet/part-0.parquet", "day1.parquet/part-1.parquet"]


@pytest.mark.parametrize("name", ["corpus.jsonl", "corpus.jsonl.gz"])
def test_of_a_beir_folder_only_the_corpus_is_read(tmp_path: Path, name: str):
    touch(tmp_path, "queries.jsonl", "qrels/test.tsv")
    (tmp_path / name).write_bytes(gzip.compress(b"{}") if name.endswith("gz") else b"{}")
    for source_format in ("auto", "beir"):
        assert names(tmp_path, resolve(tmp_path, format=source_format)) == [name]


@pytest.mark.parametrize(
    ("path", "source", "field", "problem"),
    [
        ("nowhere.jsonl", {}, "source.paths", "there is nothing at"),
        ("*.json", {}, "source.paths", "there is nothing at"),
        ("empty", {}, "source.paths", "there is nothing at"),
        ("notes.txt", {}, "source.format", "cannot be told"),
        ("notes.txt", {"version": 0}, "source.version", "is no Delta table"),
        ("", {"format": "beir"}, "source.paths", "has no corpus.jsonl"),
        ("", {"format": "delta"}, "source.paths", "does not open as a Delta table"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, path: str, source: dict, field: str, problem: str):
    touch(tmp_path, "notes.txt", "good.jsonl")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=problem) as refused:
        resolve(tmp_path / "good.jsonl", tmp_path / path, **source)
    assert refused.value.field == field


def write_delta(folder: Path, documents: list[dict], **options: Any) -> None:
    write_deltalake(folder, pa.Table.from_pylist(documents), **options)


def read(files: tuple[SourceFile, ...], source: SourceSettings) -> list[dict]:
    reader = Reader(source, 4, {})
    pieces = [Slice(file, i, 0, -1, 0, file.size) for i, file in enumerate(files)]
    rows = [row for piece in pieces for table in reader.read(piece) for row in table.to_pylist()]
    return [row for row in rows if row["reason"] != RECEIPT]


def test_a_delta_version_is_what_it_was(tmp_path: Path):
    table = tmp_path / "delta"
    write_delta(table, [{"_id": "a", "text": "x"}])
    before = resolve(table)
    write_delta(table, [{"_id": "b", "text": "y"}], mode="overwrite")
    assert resolve(table, version=0) == before
    after = resolve(table)
    assert len(after) == 1
    assert after[0].tag != before[0].tag
    with pytest.raises(ConfigError, match="a version it has"):
        resolve(table, version=2)
    read_rows = read(before, SourceSettings(paths=[str(table)]))
    assert [row["doc_id"] for row in read_rows] == ["a"]


def test_partition_values_of_a_delta_source_are_columns(tmp_path: Path):
    documents = [{"_id": f"d{i}", "text": "x", "lang": lang} for i, lang in enumerate(["en gb", "a/b=c%", None, "é"])]
    write_delta(tmp_path / "delta", documents, partition_by=["lang"])
    source = SourceSettings(paths=[str(tmp_path / "delta")], stored_fields=["lang"])
    rows = read(tuple(resolve_source(source, {})), source)
    assert {row["doc_id"]: row["stored.lang"] for row in rows} == {
        document["_id"]: document["lang"] for document in documents
    }


def test_a_delta_table_is_not_read_as_loose_files(tmp_path: Path):
    write_delta(tmp_path / "t.parquet", [{"_id": "a", "text": "x"}])
    write_delta(tmp_path / "t.parquet", [{"_id": "b", "text": "y"}], mode="overwrite")
    assert len(resolve(tmp_path / "t.parquet")) == 1
    with pytest.raises(ConfigError, match="matches the Delta table"):
        resolve(tmp_path / "*.parquet")


def edit_protocol(table: Path, edit: Callable[[dict], None]) -> None:
    log = table / "_delta_log" / f"{0:020d}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "protocol" in action:
            edit(action["protocol"])
    log.write_text("".join(json.dumps(action) + "\n" for action in actions))


def test_a_delta_table_with_deletion_vectors_is_refused_and_not_read_without_them(tmp_path: Path):
    write_delta(tmp_path / "delta", [{"_id": "a", "text": "x"}])
    features = ["deletionVectors"]
    protocol = {
        "minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features,
    }  # fmt: skip
    edit_protocol(tmp_path / "delta", lambda action: action.update(protocol))
    with pytest.raises(ConfigError, match=r"uses Delta features \['[dD]eletionVectors'\]") as refused:
        resolve(tmp_path / "delta")
    assert refused.value.field == "source.paths"
