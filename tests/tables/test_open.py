"""Tables without deltalake, and damaged logs."""

import sys
from pathlib import Path

import pyarrow as pa
import pytest

from lsr_prod.errors import ArtifactError, MissingExtraError, StorageError
from lsr_prod.storage import Store
from lsr_prod.tables import create_table, open_table
from lsr_prod.tables.delta_log import commit_name, is_commit, read_actions
from lsr_prod.tables.schema import large_strings, schema_from_json, schema_to_json, stored_strings

SCHEMA = pa.schema([pa.field("doc_id", pa.string()), pa.field("bucket", pa.string())])


def test_plain_table_opens_without_deltalake_and_a_folder_that_may_have_another_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, other = Store(str(tmp_path / "plain")), Store(str(tmp_path / "other"))
    create_table(plain, "parquet", SCHEMA, ["bucket"], {"a": "1"})
    monkeypatch.setitem(sys.modules, "lsr_prod.tables.delta", None)
    opened = open_table(plain)
    assert opened is not None
    assert opened.properties == {"a": "1"}
    with pytest.raises(MissingExtraError, match="deltalake"):
        open_table(other)


def test_version_is_that_of_the_sink_that_the_folder_has(tmp_path: Path) -> None:
    for sink in ("delta", "parquet"):
        store = Store(str(tmp_path / sink))
        create_table(store, sink, SCHEMA, ["bucket"], {})
        opened = open_table(store, 0)
        assert opened is not None
        assert (opened.sink, opened.version) == (sink, 0)
        with pytest.raises((ArtifactError, StorageError), match="version 7"):
            open_table(store, 7)


def test_names_of_commits_have_twenty_digits() -> None:
    name = commit_name(7).rpartition("/")[2]
    assert is_commit(name)
    others = ["7.json", f"0{name}", name.replace(".json", ".jsou"), name.replace("0", "x", 1), name[:20]]
    assert not any(map(is_commit, others))


def test_missing_or_damaged_commit_is_an_error_and_empty_lines_are_skipped(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    with pytest.raises(ArtifactError, match=r"has lost the log of version 3; restore _delta_log/0*3\.json"):
        read_actions(store, 3)
    store.put_new(commit_name(3), b'{"add": {}}\n\n{"remove": {}}\n')
    assert read_actions(store, 3) == [{"add": {}}, {"remove": {}}]
    store.put_new(commit_name(4), b'{"add": {}\n')
    with pytest.raises(ArtifactError, match=r"0*4\.json is damaged \(.*\); restore it"):
        read_actions(store, 4)


def test_types_of_columns_that_tables_do_not_have_are_errors() -> None:
    for kind in (pa.date32(), pa.list_(pa.date32()), pa.list_(pa.list_(pa.int32()))):
        with pytest.raises(ArtifactError, match=r"column day is .*; tables support"):
            schema_to_json(pa.schema([pa.field("day", kind)]))
    for name in ("date32[day]", "list<date32[day]>", "list<list<int32>>"):
        with pytest.raises(ArtifactError, match="which this release does not know; use a newer release"):
            schema_from_json([{"name": "day", "type": name, "nullable": True}])


def test_both_types_of_strings_become_the_one_of_memory_or_of_files() -> None:
    kinds = [pa.string(), pa.large_string(), pa.int32()]
    schema = pa.schema([pa.field(f"c{place}", kind) for place, kind in enumerate(kinds)])
    assert large_strings(schema).types == [pa.large_string(), pa.large_string(), pa.int32()]
    assert stored_strings(schema).types == [pa.string(), pa.string(), pa.int32()]
