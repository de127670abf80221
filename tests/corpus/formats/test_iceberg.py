"""Tables as pyiceberg writes them; without the extra, only its absence is tested."""

import shutil
import sys
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lsr_prod.config import SourceSettings
from lsr_prod.corpus.formats.iceberg import ICEBERG
from lsr_prod.corpus.listing import resolve_source, source_schema
from lsr_prod.corpus.pinned_file import WHOLE, Slice
from lsr_prod.corpus.read import Reader
from lsr_prod.errors import ConfigError, MissingExtraError

META = pa.struct([("url", pa.string())])
COLUMNS = pa.schema([("_id", pa.string()), ("text", pa.string()), ("day", pa.date32()), ("meta", META)])


def rows(doc_id: str, day: date | None = None) -> list[dict]:
    return [{"_id": doc_id, "text": "x", "day": day, "meta": {"url": "u"}}]


def new_table(folder: Path) -> Any:
    """Create a table that is partitioned by day, in a catalog of its own."""
    pytest.importorskip("sqlalchemy")
    module = pytest.importorskip("pyiceberg.catalog.sql")
    catalog = module.SqlCatalog("c", uri=f"sqlite:///{folder}/catalog.db", warehouse=folder.as_uri())
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", schema=COLUMNS)
    with table.update_spec() as spec:
        spec.add_identity("day")
    table.append(pa.Table.from_pylist(rows("a", date(2026, 1, 2)), COLUMNS))
    table.append(pa.Table.from_pylist(rows("b"), COLUMNS))
    return table


def metadata_of(table: Any) -> str:
    return str(table.metadata_location).removeprefix("file://")


def read(path: str, text: str = "text", **source: Any) -> dict[str, dict]:
    fields = {"text_fields": [text], "stored_fields": ["day", "n", "url"], "columns": {"url": "meta.url"}}
    settings = SourceSettings(paths=[path], **fields, **source)
    found = {}
    for ordinal, file in enumerate(resolve_source(settings, {})):
        for batch in Reader(settings, 1, {}).read(Slice(file, ordinal, 0, WHOLE, 0, file.size)):
            found |= {row["doc_id"]: row for row in batch.to_pylist()}
    return found


def test_rows_of_a_snapshot_are_read_by_the_numbers_of_columns(tmp_path: Path):
    table = new_table(tmp_path)
    snapshot = table.history()[-1].snapshot_id
    with table.update_schema() as schema:
        schema.rename_column("text", "body")
        schema.add_column("n", pytest.importorskip("pyiceberg.types").LongType())
    columns = table.schema().as_arrow()
    table.append(pa.Table.from_pylist([{"_id": "c", "body": "y", "day": date(2026, 1, 3), "n": 4}], columns))
    path = metadata_of(table)
    found = read(path, "body")
    assert {name: tuple(row[f"stored.{field}"] for field in ("day", "n", "url")) for name, row in found.items()} == {
        "a": ("2026-01-02", None, "u"), "b": (None, None, "u"), "c": ("2026-01-03", "4", None),
    }  # fmt: skip
    assert [found[name]["text"] for name in "abc"] == ["x", "x", "y"]
    assert sorted(read(path, version=snapshot)) == ["a", "b"]
    shutil.copytree(Path(path).parents[1], tmp_path / "moved")
    assert read(f"{tmp_path}/moved/metadata/{Path(path).name}", "body").keys() == found.keys()
    typed = source_schema(SourceSettings(paths=[path]), {})
    assert typed is not None
    assert (typed.names, typed.field("day").type) == (["_id", "body", "day", "meta", "n"], pa.date32())


def test_table_that_cannot_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    table = new_table(tmp_path)
    path, other = metadata_of(table), tmp_path / "metadata" / "x.metadata.json"
    with pytest.raises(ConfigError, match=r"has no snapshot 3; give the id"):
        read(path, version=3)
    other.parent.mkdir()
    with pytest.raises(ConfigError, match="is no metadata file"):
        read(str(other))
    other.write_text("{}")
    with pytest.raises(ConfigError, match="is not metadata of Iceberg"):
        read(str(other))
    planned = list(table.scan().plan_files())
    monkeypatch.setattr(type(table.scan()), "plan_files", lambda _: planned)
    planned[0].delete_files.add(planned[0].file)  # pyiceberg does not write such files
    with pytest.raises(ConfigError, match=r"has deleted rows of data/.*rewrite_data_files"):
        read(path)
    monkeypatch.undo()
    next(Path(path).parents[1].glob("data/*/*.parquet")).unlink()
    with pytest.raises(ConfigError, match=r"a file of the table at this version, was deleted"):
        read(path)
    for manifest in Path(path).parent.glob("*-m0.avro"):
        manifest.write_bytes(b"Obj")
    with pytest.raises(ConfigError, match=r"the manifests of .* cannot be read"):
        read(path)


def test_files_that_were_added_have_the_names_of_the_table(tmp_path: Path):
    table = new_table(tmp_path)
    added, outside = Path(metadata_of(table)).parents[1] / "data" / "added.parquet", tmp_path / "outside.parquet"
    for file, doc_id in ((added, "z"), (outside, "y")):
        pq.write_table(pa.Table.from_pylist(rows(doc_id, date(2026, 1, 2)), COLUMNS), file)
    table.add_files([str(added)])
    assert sorted(read(metadata_of(table))) == ["a", "b", "z"]
    table.add_files([str(outside)])
    with pytest.raises(ConfigError, match=r"outside\.parquet is not in the folder of its table"):
        read(metadata_of(table))


def test_extra_is_named_if_it_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pyiceberg.catalog.noop", None)
    monkeypatch.setitem(sys.modules, "pyiceberg", None)
    path = f"{tmp_path}/metadata/v3.metadata.json"
    assert ICEBERG.recognizes(path, {})
    assert not ICEBERG.recognizes(f"{tmp_path}/v3.metadata.json", {})
    with pytest.raises(MissingExtraError, match=r"pip install 'lsr_prod\[iceberg\]'"):
        read(path)
