from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import WriterProperties, write_deltalake

from lsr_prod.config import SourceSettings
from lsr_prod.corpus.filelist import cut_files, iterate_files, list_files
from lsr_prod.corpus.formats.arrow import is_text
from lsr_prod.corpus.formats.delta import DELTA
from lsr_prod.corpus.listing import resolve_source
from lsr_prod.corpus.pinned_file import Slice, SourceFile
from lsr_prod.corpus.read import Reader
from lsr_prod.errors import ConfigError, SourceError
from lsr_prod.storage import Store, delta_log
from lsr_prod.storage.deletion_vector import DeletionVector
from tests.corpus.delta_tables import actions_of, delete_rows, rename_columns, require, write_commit


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


def ids(source: SourceSettings) -> list[str]:
    return [row["doc_id"] for row in read(tuple(resolve_source(source, {})), source)]


@pytest.mark.parametrize("inline", [True, False])
def test_deleted_rows_are_not_read_and_the_others_keep_their_positions(tmp_path: Path, inline: bool):
    table = tmp_path / "delta"
    documents = [{"_id": f"d{i}", "text": "x" if i != 5 else ""} for i in range(8)]
    write_delta(table, documents, writer_properties=WriterProperties(max_row_group_size=3))
    require(table, "deletionVectors")
    (file,) = resolve(table)
    delete_rows(table, 1, {file.name: [0, 3, 4, 7]}, inline=inline)
    source = SourceSettings(paths=[str(table)])
    (file,) = resolve(table)
    for limit in (1, file.size):  # a slice per row group, and the whole file
        pieces = [*cut_files([(0, file)], source, limit, {})]
        rows = [row for piece in pieces for batch in Reader(source, 4, {}).read(piece) for row in batch.to_pylist()]
        found = [(row["doc_id"], row["position"], row["reason"]) for row in rows]
        assert found == [("d1", 1, None), ("d2", 2, None), ("d5", 5, "empty_text"), ("d6", 6, None)]
    assert [(slice_.start, slice_.stop) for slice_ in cut_files([(0, file)], source, 1, {})] == [(0, 1), (1, 2), (2, 3)]


def test_file_with_another_deletion_vector_is_another_file(tmp_path: Path):
    table = tmp_path / "delta"
    for number in range(2):
        write_delta(table, [{"_id": f"{number}{i}", "text": "x"} for i in range(3)], mode="append")
    require(table, "deletionVectors")
    before = resolve(table)
    delete_rows(table, 2, {before[1].name: [0]})
    delete_rows(table, 3, {before[1].name: [0, 2]})
    versions = [resolve(table, version=version) for version in (1, 2, 3)]
    assert versions[0] == before
    assert len({files[0].key for files in versions}) == 1
    assert len({files[1].key for files in versions}) == 3
    assert [file for _, file in iterate_files(list_files(versions[2]))] == list(versions[2])
    read_ids = [len(ids(SourceSettings(paths=[str(table)], version=version))) for version in (1, 2, 3)]
    assert read_ids == [6, 5, 4]


def test_deletion_vector_that_is_lost_or_damaged_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    table = tmp_path / "delta"
    write_delta(table, [{"_id": f"d{i}", "text": "x"} for i in range(3)])
    require(table, "deletionVectors")
    (file,) = resolve(table)
    delete_rows(table, 1, {file.name: [0]}, inline=False)
    files = resolve(table)
    (stored,) = table.glob("deletion_vector_*.bin")
    stored.write_bytes(stored.read_bytes()[:-1] + b"?")
    with pytest.raises(SourceError, match=r"the deleted rows of .*\.parquet cannot be read: .* is damaged; restore it"):
        read(files, SourceSettings(paths=[str(table)]))
    stored.unlink()
    with pytest.raises(ConfigError, match=r"deletion_vector_.*, which names deleted rows of .*, was deleted"):
        resolve(table)
    (add,) = (one["add"] for one in actions_of(table, 1) if "add" in one)
    vector = add["deletionVector"] | {"storageType": "p"}
    write_commit(table, 1, [{"add": {**add, "deletionVector": vector}}])
    with pytest.raises(ConfigError, match="is stored as 'p'"):
        resolve(table)
    monkeypatch.setattr(delta_log, "deletion_vectors", lambda *_: {"x.parquet": DeletionVector("i", "", None, 0, 0)})
    with pytest.raises(ConfigError, match=r"deletes rows of x\.parquet, which is not one of its files"):
        resolve(table)


@pytest.mark.parametrize("mode", ["name", "id"])
def test_columns_with_other_names_in_the_files_are_read(tmp_path: Path, mode: str):
    table = tmp_path / "delta"
    write_delta(table, [{"c1": "a", "text": "old", "c3": "x", "c4": {"f": "u"}, "c5": "en"}], partition_by=["c5"])
    names = {
        "c1": ("_id", 1),
        "text": ("was", 2),
        "c3": ("text", 3),
        "c4": ("meta", 4),
        "f": ("url", 6),
        "c5": ("lang", 5),
    }
    rename_columns(table, names, mode)
    source = SourceSettings(
        paths=[str(table)], stored_fields=["url", "lang", "was", "absent"], columns={"url": "meta.url"}
    )  # fmt: skip
    if mode == "id":  # numbers of columns win over names
        (file,) = table.glob("c5=en/*.parquet")
        content = pq.read_table(file, partitioning=None)
        numbered = [
            field.with_name(f"x{i}").with_metadata({"PARQUET:field_id": str(names[field.name][1])})
            for i, field in enumerate(content.schema)
        ]
        pq.write_table(pa.table(content.columns, schema=pa.schema(numbered)), file)
        actions = [
            {"add": {**one["add"], "size": file.stat().st_size}} if "add" in one else one
            for one in actions_of(table, 0)
        ]
        write_commit(table, 0, actions)
    (row,) = read(tuple(resolve_source(source, {})), source)
    assert (row["doc_id"], row["text"]) == ("a", "x")
    assert (row["stored.lang"], row["stored.was"], row["stored.absent"]) == ("en", "old", None)
    assert row["stored.url"] == (None if mode == "id" else "u")  # the test numbers columns only


def test_file_changes_only_with_the_columns_that_are_read(tmp_path: Path):
    table = tmp_path / "delta"
    write_delta(table, [{"c1": "a", "c2": "x", "c3": "y"}])
    keys = []
    for second, third in (("text", "other"), ("text", "another"), ("other", "text")):
        rename_columns(table, {"c1": ("_id", 1), "c2": (second, 2), "c3": (third, 3)}, "name")
        keys.append(resolve(table)[0].key)
    assert keys[0] == keys[1] != keys[2]


def test_table_that_cannot_be_read_is_refused_with_a_remedy(tmp_path: Path):
    table = tmp_path / "delta"
    write_delta(table, [{"_id": "a", "text": "x"}])
    for feature, problem in (
        ("catalogManaged", r"catalog-managed \(a catalog holds"),
        ("futureFeature", "futureFeature"),
    ):
        require(table, feature)
        with pytest.raises(ConfigError, match=rf"uses Delta features {problem}.*write\.parquet") as refused:
            resolve(table)
        assert refused.value.field == "source.paths"
    require(table, "variantType-preview", "timestampNtz", "v2Checkpoint")
    assert ids(SourceSettings(paths=[str(table)])) == ["a"]
    (add,) = (one["add"] for one in actions_of(table, 0) if "add" in one)
    write_commit(table, 1, [{"add": {**add, "path": f"{(tmp_path / 'origin').as_uri()}/{add['path']}"}}])
    with pytest.raises(ConfigError, match="shallow clone"):
        resolve(table)


def test_partition_values_have_the_text_of_column_values(tmp_path: Path):
    moment = datetime(2026, 1, 2, 3, 4, 5, 600000, tzinfo=UTC)
    values = {
        "day": date(2026, 1, 2), "at": moment, "yes": True, "n": 7, "x": 10.0, "price": Decimal("1.50"), "s": "é",
    }  # fmt: skip
    for name, by in (("columns", None), ("partitions", [*values])):
        write_delta(tmp_path / name, [{"_id": "a", "text": "x", **values}], partition_by=by)
    sources = [
        SourceSettings(paths=[str(tmp_path / name)], stored_fields=[*values]) for name in ("columns", "partitions")
    ]
    (typed,), (constant,) = (read(tuple(resolve_source(source, {})), source) for source in sources)
    assert {name: constant[f"stored.{name}"] for name in values} == {name: typed[f"stored.{name}"] for name in values}
    assert constant["stored.at"] == "2026-01-02T03:04:05.6Z"


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
