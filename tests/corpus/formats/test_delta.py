import json
from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from lsr_prod.config import SourceSettings
from lsr_prod.corpus.formats.arrow import is_text
from lsr_prod.corpus.formats.delta import DELTA
from lsr_prod.corpus.listing import resolve_source
from lsr_prod.corpus.pinned_file import SourceFile
from lsr_prod.corpus.read import Reader
from lsr_prod.corpus.slices import Slice
from lsr_prod.errors import ConfigError, SourceError
from lsr_prod.storage import Store


def resolve(*paths: Path | str, **source: Any) -> tuple[SourceFile, ...]:
    return tuple(resolve_source(SourceSettings(paths=[str(path) for path in paths], **source), {}))


def write_delta(folder: Path | str, documents: list[dict], **options: Any) -> None:
    write_deltalake(folder, pa.Table.from_pylist(documents), **options)


def read(files: tuple[SourceFile, ...], source: SourceSettings) -> list[dict]:
    reader = Reader(source, 4, {})
    pieces = [Slice(file, i, 0, -1, 0, file.size) for i, file in enumerate(files)]
    return [row for piece in pieces for table in reader.read(piece) for row in table.to_pylist()]


def test_old_delta_version_has_its_old_files(tmp_path: Path):
    table = tmp_path / "delta"
    write_delta(table, [{"_id": "a", "text": "x"}])
    before = resolve(table)
    write_delta(table, [{"_id": "b", "text": "y"}], mode="overwrite")
    assert resolve(table, version=0) == before
    after = resolve(table)
    assert len(after) == 1
    assert after[0].tag != before[0].tag
    with pytest.raises(ConfigError, match="a version that it has"):
        resolve(table, version=2)
    read_rows = read(before, SourceSettings(paths=[str(table)]))
    assert [row["doc_id"] for row in read_rows] == ["a"]


def test_partition_values_are_columns(tmp_path: Path):
    documents = [{"_id": f"d{i}", "text": "x", "lang": lang} for i, lang in enumerate(["en gb", "a/b=c%", None, "é"])]
    write_delta(tmp_path / "delta", documents, partition_by=["lang"])
    source = SourceSettings(paths=[str(tmp_path / "delta")], stored_fields=["lang"])
    rows = read(tuple(resolve_source(source, {})), source)
    assert {row["doc_id"]: row["stored.lang"] for row in rows} == {
        document["_id"]: document["lang"] for document in documents
    }


def test_delta_table_is_not_read_as_loose_files(tmp_path: Path):
    write_delta(tmp_path / "t.parquet", [{"_id": "a", "text": "x"}])
    write_delta(tmp_path / "t.parquet", [{"_id": "b", "text": "y"}], mode="overwrite")
    assert len(resolve(tmp_path / "t.parquet")) == 1
    for path in ("*.parquet", "", "**/*.parquet"):
        with pytest.raises(ConfigError, match="matches the Delta table"):
            resolve(tmp_path / path)


def test_delta_table_in_object_store_is_not_read_as_loose_files(tmp_path: Path, s3_options: dict[str, str]):
    uri = f"s3://lsr/{tmp_path.name}/t.parquet"
    options = {key.upper(): value for key, value in s3_options.items()}
    for mode in ("append", "overwrite"):
        write_delta(uri, [{"_id": "a", "text": mode}], mode=mode, storage_options=options)
    assert len(tuple(resolve_source(SourceSettings(paths=[uri]), s3_options))) == 1
    for path in (f"s3://lsr/{tmp_path.name}", f"s3://lsr/{tmp_path.name}/**/*.parquet"):
        with pytest.raises(ConfigError, match="matches the Delta table"):
            tuple(resolve_source(SourceSettings(paths=[path]), s3_options))


def edit_protocol(table: Path, edit: Callable[[dict], None]) -> None:
    log = table / "_delta_log" / f"{0:020d}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "protocol" in action:
            edit(action["protocol"])
    log.write_text("".join(json.dumps(action) + "\n" for action in actions))


def test_delta_table_with_deletion_vectors_is_rejected(tmp_path: Path):
    write_delta(tmp_path / "delta", [{"_id": "a", "text": "x"}])
    features = ["deletionVectors"]
    protocol = {
        "minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features,
    }  # fmt: skip
    edit_protocol(tmp_path / "delta", lambda action: action.update(protocol))
    with pytest.raises(ConfigError, match=r"uses Delta features \['[dD]eletionVectors'\]") as refused:
        resolve(tmp_path / "delta")
    assert refused.value.field == "source.paths"


def test_delta_table_with_renamed_columns_is_rejected(tmp_path: Path):
    write_delta(tmp_path / "delta", [{"_id": "a", "text": "x"}])
    edit_protocol(tmp_path / "delta", lambda action: action.update({"minReaderVersion": 2, "minWriterVersion": 5}))
    log = tmp_path / "delta" / "_delta_log" / f"{0:020d}.json"
    log.write_text(
        log.read_text()
        .replace('"configuration":{}', '"configuration":{"delta.columnMapping.mode":"name"}')
        .replace('"configuration": {}', '"configuration": {"delta.columnMapping.mode": "name"}')
    )
    assert "columnMapping" in log.read_text()
    with pytest.raises(ConfigError, match="delta") as refused:
        resolve(tmp_path / "delta")
    assert refused.value.field == "source.paths"


def test_column_names_of_the_settings_apply_to_partition_columns(tmp_path: Path):
    documents = [{"docno": "a", "body": "x", "lang": "en"}]
    write_delta(tmp_path / "delta", documents, partition_by=["lang"])
    source = SourceSettings(
        paths=[str(tmp_path / "delta")], text_fields=["text"], stored_fields=["language"],
        columns={"_id": "docno", "text": "body", "language": "lang"},
    )  # fmt: skip
    (row,) = read(tuple(resolve_source(source, {})), source)
    assert (row["doc_id"], row["text"], row["stored.language"]) == ("a", "x", "en")


def test_files_of_a_table_are_verified_while_they_are_read(tmp_path: Path, s3_options: dict[str, str]):
    local, remote = str(tmp_path / "delta"), f"s3://lsr/{tmp_path.name}/delta"
    options = {key.upper(): value for key, value in s3_options.items()}
    for table, given in ((local, None), (remote, options)):
        write_delta(table, [{"_id": "a", "text": "x"}], storage_options=given)
    source = SourceSettings(paths=[local, remote])
    (here,), (there,) = (tuple(resolve_source(SourceSettings(paths=[path]), s3_options)) for path in source.paths)
    reader = Reader(source, 4, s3_options)
    pieces = [Slice(file, 0, 0, -1, 0, file.size) for file in (here, there)]
    assert [table["doc_id"].to_pylist() for piece in pieces for table in reader.read(piece)] == [["a"], ["a"]]
    path, store = Path(here.location), Store(remote, s3_options)
    content = path.read_bytes()
    path.write_bytes(content[:8] + b"y" + content[9:])
    store.delete(there.name)
    store.put_new(there.name, content[:8] + b"y" + content[9:])
    for piece in pieces:
        with pytest.raises(SourceError, match=r"delta/part-.*parquet has changed since it was pinned"):
            list(reader.read(piece))


def test_schema_has_the_types_of_all_columns_at_the_version(tmp_path: Path):
    table = str(tmp_path / "delta")
    days = [{"_id": 1, "text": "x", "day": date(2026, 1, 2)}]
    write_delta(table, days, partition_by=["day"])
    write_delta(table, [{**days[0], "at": datetime(2026, 1, 2)}], mode="append", schema_mode="merge")
    assert DELTA.schema is not None
    old, new = (DELTA.schema(table, SourceSettings(paths=[table], version=version), {}) for version in (0, None))
    assert old.names == ["_id", "text", "day"]
    assert (old.field("_id").type, old.field("day").type) == (pa.int64(), pa.date32())
    assert is_text(old.field("text").type)
    assert new.field("at").type == pa.timestamp("us")
