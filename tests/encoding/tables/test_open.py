"""Versions of a table, damaged logs, and types of strings."""

from pathlib import Path

import pyarrow as pa
import pytest

from lsr_prod.encoding.tables import create_table, open_table
from lsr_prod.encoding.tables.part import large_strings, stored_strings
from lsr_prod.errors import ArtifactError, StorageError
from lsr_prod.storage import Store
from lsr_prod.storage.delta_log import commit_name, is_commit, read_actions

SCHEMA = pa.schema([pa.field("doc_id", pa.string()), pa.field("bucket", pa.string())])


def test_missing_version_of_a_table_is_an_error(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    create_table(store, SCHEMA, ["bucket"], {})
    opened = open_table(store, 0)
    assert opened is not None
    assert opened.version == 0
    with pytest.raises(StorageError, match="version 7"):
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


def test_both_types_of_strings_become_the_one_of_memory_or_of_files() -> None:
    kinds = [pa.string(), pa.large_string(), pa.int32()]
    schema = pa.schema([pa.field(f"c{place}", kind) for place, kind in enumerate(kinds)])
    assert large_strings(schema).types == [pa.large_string(), pa.large_string(), pa.int32()]
    assert stored_strings(schema).types == [pa.string(), pa.string(), pa.int32()]
