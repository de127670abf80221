"""Old log entries are deleted up to a checkpoint; versions that are kept stay readable, transactions stay known."""

from pathlib import Path

import pyarrow as pa
import pytest

from lsr_prod.encoding.tables import create_table, open_table, write_part
from lsr_prod.errors import ArtifactError, StorageError
from lsr_prod.operations.maintenance.vacuum import vacuum
from lsr_prod.storage import Store
from tests.encoding.made_tables import newest
from tests.operations.maintenance.test_vacuum import DAY, age

_COMMITS = 40
_EVERY = 10  # commits between checkpoints
_SCHEMA = pa.schema([("doc_id", pa.string()), ("bucket", pa.int32())])


@pytest.fixture
def table(tmp_path: Path) -> Store:
    """A table with a part per commit, the first of which is another plan's."""
    store = Store(str(tmp_path))
    create_table(store, _SCHEMA, ["bucket"], {"delta.checkpointInterval": str(_EVERY)})
    for number in range(_COMMITS):
        part = write_part(store, "bucket=0", pa.table({"doc_id": [f"d{number}"]}), "plan/0")
        app = "plan" if number else "first"
        newest(store).commit([(part, {"bucket": "0"})], [], app=app, version=number, epoch=1)
    return store


def versions(store: Store) -> list[int]:
    return [entry.version for entry in newest(store).log()]


def test_log_is_deleted_up_to_the_last_checkpoint_before_the_kept_versions(table: Store, tmp_path: Path):
    files = newest(table).file_table()
    age(tmp_path)
    deleted = vacuum(table, DAY)
    first = (_COMMITS // _EVERY) * _EVERY - 1
    assert versions(table) == list(range(first, _COMMITS + 1))
    assert deleted.counts() == {"log": first + _COMMITS // _EVERY - 1}
    assert vacuum(table, DAY).entries == ()
    found = newest(table)
    assert found.file_table().equals(files)
    assert (found.transaction_version("first"), found.transaction_version("plan")) == (0, _COMMITS - 1)
    oldest = open_table(table, first)
    assert oldest is not None
    assert oldest.file_table().num_rows == first
    part = write_part(table, "bucket=0", pa.table({"doc_id": ["new"]}), "plan/0")
    found.commit([(part, {"bucket": "0"})], [], app="plan", version=_COMMITS, epoch=1)
    assert newest(table).version == _COMMITS + 1
    assert vacuum(table, 10 * 365 * DAY).entries == ()  # a longer retention than before


def test_log_of_versions_to_keep_is_kept(table: Store, tmp_path: Path):
    age(tmp_path)
    kept = 2 * _EVERY + 1
    vacuum(table, DAY, keep_versions=[kept])
    first = 2 * _EVERY - 1
    assert versions(table)[0] == first
    old = open_table(table, kept)
    assert old is not None
    assert old.file_table().num_rows == kept
    age(tmp_path, days=0)
    before = table.names()
    assert vacuum(table, DAY).entries == ()  # all versions are young
    assert table.names() == before


def test_nothing_is_deleted_if_the_checkpoint_is_damaged(table: Store, tmp_path: Path):
    checkpoint = max((tmp_path / "_delta_log").glob("*.checkpoint.parquet"))
    checkpoint.write_bytes(b"torn")
    age(tmp_path)
    before = table.names()
    with pytest.raises((ArtifactError, StorageError)):
        vacuum(table, DAY)
    assert [name for name in before if name not in table.names()] == []
