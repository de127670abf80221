"""Contract of a table."""

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset
import pytest
from deltalake import DeltaTable

from lsr_prod.encoding.tables import Part, Table, create_table, open_table, write_part
from lsr_prod.encoding.tables import table as tables
from lsr_prod.errors import ArtifactError, CommitError, DiskFullError, StorageError, TableConflictError
from lsr_prod.storage import Store

SCHEMA = pa.schema(
    [
        pa.field("doc_id", pa.string(), nullable=False),
        pa.field("bucket", pa.int32(), nullable=False),
        pa.field("terms", pa.list_(pa.field("element", pa.int32(), nullable=False)), nullable=False),
        pa.field("title", pa.string()),
    ]
)


def make(store: Store) -> Table:
    return create_table(store, SCHEMA, ["bucket"], {"lsr_prod.a": "1"})


def part(store: Store, names: str, bucket: int = 0) -> tuple[Part, dict[str, str | None]]:
    rows = [{"doc_id": name, "terms": [1, 2], "title": None} for name in names]
    schema = SCHEMA.remove(1)
    return write_part(store, f"bucket={bucket}", pa.Table.from_pylist(rows, schema=schema), "plan/0"), {
        "bucket": str(bucket)
    }


def reopen(store: Store, version: int | None = None) -> Table:
    table = open_table(store, version)
    assert table is not None
    return table


def paths(table: Table) -> list[str]:
    return [file.path for file in table.files()]


def test_open_table_returns_none_without_a_table(store: Store):
    assert open_table(store) is None
    store.put_new("photo.jpg", b"x")
    assert open_table(store) is None


def test_create_table_stores_partitions_properties_and_schema(store: Store):
    made = make(store)
    assert (made.version, made.partition_by, made.files()) == (0, ("bucket",), [])
    assert made.properties["lsr_prod.a"] == "1"
    assert made.schema.equals(SCHEMA)
    other = create_table(store, SCHEMA, ["bucket"], {"lsr_prod.a": "2"})
    assert (other.version, other.properties["lsr_prod.a"]) == (0, "1")


def test_concurrent_creators_get_one_table(store: Store):
    def make_with(i: int) -> str:
        barrier.wait()
        return create_table(store, SCHEMA, ["bucket"], {"lsr_prod.a": str(i)}).properties["lsr_prod.a"]

    barrier = threading.Barrier(6)
    with ThreadPoolExecutor(6) as pool:
        found = set(pool.map(make_with, range(6)))
    assert found == {reopen(store).properties["lsr_prod.a"]}
    assert reopen(store).version == 0


def test_late_creator_changes_nothing(store: Store, monkeypatch: pytest.MonkeyPatch):
    make(store)
    reopen(store).commit([part(store, "a")], [], app="p", version=0, epoch=1)
    whole, looks = open_table, []

    def late(store: Store, version: int | None = None) -> Table | None:
        looks.append(store)
        return None if len(looks) == 1 else whole(store, version)  # it looked before the table existed

    monkeypatch.setattr(tables, "open_table", late)
    found = create_table(store, SCHEMA, ["bucket"], {"lsr_prod.a": "2"})
    assert (found.version, found.properties["lsr_prod.a"], len(looks)) == (1, "1", 2)


def test_commit_adds_and_removes_files_and_keeps_older_versions(store: Store):
    make(store)
    first, second = part(store, "ab"), part(store, "c", 1)
    reopen(store).commit([first, second], [], app="p", version=0, epoch=1)
    third = part(store, "abd")
    reopen(store).commit([third], [first[0].path], app="p", version=1, epoch=1, data_change=False)
    table = reopen(store)
    assert [(file.path, file.size, file.rows, file.partition) for file in table.files()] == sorted(
        (one.path, one.size, one.rows, values) for one, values in (second, third)
    )
    assert table.transaction_version("p") == 1
    assert table.transaction_version("q") is None
    assert paths(reopen(store, 1)) == sorted([first[0].path, second[0].path])
    assert reopen(store, 0).transaction_version("p") is None
    assert table.added_since(0) == {first[0].path, second[0].path, third[0].path}
    assert table.added_since(1) == {third[0].path}
    assert [entry.version for entry in table.log()] == [0, 1, 2]
    with pytest.raises((ArtifactError, StorageError)):
        open_table(store, 9)


def test_commit_from_a_stale_snapshot_of_the_same_app_is_rejected(store: Store):
    make(store)
    stale = reopen(store)
    reopen(store).commit([part(store, "a")], [], app="p", version=0, epoch=1)
    with pytest.raises(TableConflictError):
        stale.commit([part(store, "a", 1)], [], app="p", version=0, epoch=2)
    with pytest.raises(TableConflictError):
        stale.commit([], [], app="p", version=-1, epoch=2)
    assert reopen(store).version == 1


def test_file_of_the_table_cannot_be_added_again(store: Store):
    make(store)
    first, second = part(store, "a"), part(store, "b")
    reopen(store).commit([first, second], [], app="p", version=0, epoch=1)
    for adds, removes in ([first], [first[0].path]), ([second], []), ([part(store, "c")] * 2, []):
        with pytest.raises(CommitError, match="may not add it again"):
            reopen(store).commit(adds, removes, app="p", version=1, epoch=1)
    assert (reopen(store).version, paths(reopen(store))) == (1, sorted([first[0].path, second[0].path]))


def test_second_removal_of_a_file_is_rejected(store: Store):
    make(store)
    old = part(store, "a")
    reopen(store).commit([old], [], app="p", version=0, epoch=1)
    one, other = reopen(store), reopen(store)
    one.commit([part(store, "ab")], [old[0].path], app="x", version=0, epoch=1)
    with pytest.raises(TableConflictError):
        other.commit([part(store, "ac")], [old[0].path], app="y", version=0, epoch=1)
    with pytest.raises(TableConflictError, match="no longer has"):
        reopen(store).commit([part(store, "ac")], [old[0].path], app="y", version=0, epoch=1)
    assert sum(file.rows or 0 for file in reopen(store).files()) == 2


def test_removal_from_a_stale_snapshot_is_rejected_after_any_commit(store: Store):
    make(store)
    old = part(store, "a")
    reopen(store).commit([old], [], app="p", version=0, epoch=1)
    stale = reopen(store)
    reopen(store).commit([part(store, "b")], [], app="p", version=1, epoch=1)
    with pytest.raises(TableConflictError):
        stale.commit([part(store, "ac")], [old[0].path], app="x", version=0, epoch=1)
    assert sum(file.rows or 0 for file in reopen(store).files()) == 2


def test_addition_is_rejected_after_a_removal_of_another_app(store: Store):
    """A running encode job must load the table again after a compaction."""
    make(store)
    old = part(store, "a")
    reopen(store).commit([old], [], app="p", version=0, epoch=1)
    stale = reopen(store)
    reopen(store).commit([part(store, "ab")], [old[0].path], app="x", version=0, epoch=1)
    with pytest.raises(CommitError):
        stale.commit([part(store, "z")], [], app="p", version=1, epoch=1)


def test_plain_parquet_readers_read_the_files(tmp_path: Path):
    store = Store(str(tmp_path))
    make(store)
    reopen(store).commit([part(store, "ab"), part(store, "c", 1)], [], app="p", version=0, epoch=1)
    part(store, "lost")  # written and not committed
    files = [f"{tmp_path}/{path}" for path in paths(reopen(store))]
    dataset = pyarrow.dataset.dataset(files, schema=SCHEMA, partitioning="hive", partition_base_dir=str(tmp_path))
    found = dataset.to_table(filter=pyarrow.dataset.field("bucket") < 2).to_pylist()
    assert sorted((row["doc_id"], row["bucket"]) for row in found) == [("a", 0), ("b", 0), ("c", 1)]


def test_open_table_reports_an_unreadable_delta_log(tmp_path: Path):
    make(Store(str(tmp_path)))
    (tmp_path / "_delta_log" / f"{0:020d}.json").write_text("no json")
    with pytest.raises(StorageError, match="cannot be opened as a Delta table"):
        open_table(Store(str(tmp_path)))


def test_commit_to_a_log_that_became_a_file_is_a_storage_error(tmp_path: Path):
    store = Store(str(tmp_path))
    table = make(store)
    added = part(store, "a")
    shutil.rmtree(tmp_path / "_delta_log")
    (tmp_path / "_delta_log").write_text("")
    with pytest.raises(StorageError, match="cannot be committed to"):
        table.commit([added], [], app="p", version=0, epoch=1)


def test_commit_to_a_full_disk_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    table = make(Store(str(tmp_path)))
    added = part(table.store, "a")

    def refuse(*_: object, **__: object) -> None:
        raise OSError("Generic LocalFileSystem error: Unable to rename file\n↳ Disk quota exceeded (os error 122)")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", refuse)
    with pytest.raises(DiskFullError, match="free space on its disk, or raise the quota"):
        table.commit([added], [], app="p", version=0, epoch=1)


@pytest.mark.parametrize("kind", ["remote", "other"])
def test_only_errors_of_stores_become_storage_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str):
    raised = type("PanicException", (BaseException,), {})() if kind == "remote" else KeyError("name")

    def refuse(*_: object, **__: object) -> None:
        raise raised

    make(Store(str(tmp_path)))
    monkeypatch.setattr(tables, "DeltaTable", refuse)
    with pytest.raises(StorageError if kind == "remote" else KeyError):
        open_table(Store(str(tmp_path)))


def test_log_lists_commits_without_checkpoints(tmp_path: Path):
    store = Store(str(tmp_path))
    make(store).commit([part(store, "a")], [], app="p", version=0, epoch=1)
    DeltaTable(store.location).create_checkpoint()
    assert [entry.version for entry in reopen(store).log()] == [0, 1]


def test_commit_changes_properties_for_later_versions_only(store: Store):
    table = make(store)
    before = dict(table.properties)
    table.commit([part(store, "a")], [], app="p", version=0, epoch=1, properties={"lsr_prod.x": "1"})
    reopen(store).commit([part(store, "b")], [], app="p", version=1, epoch=1)
    assert dict(reopen(store).properties) == {**before, "lsr_prod.x": "1"}
    assert dict(reopen(store, 0).properties) == before
    assert paths(reopen(store)) == sorted(part(store, name)[0].path for name in "ab")


def test_change_of_properties_conflicts_with_every_other_commit(store: Store):
    make(store)
    one, other = reopen(store), reopen(store)
    one.commit([part(store, "a")], [], app="p", version=0, epoch=1)
    with pytest.raises(TableConflictError):
        other.commit([], [], app="q", version=0, epoch=1, properties={"lsr_prod.x": "1"})
    one, other = reopen(store), reopen(store)
    one.commit([], [], app="q", version=0, epoch=1, properties={"lsr_prod.x": "1"})
    with pytest.raises(TableConflictError):
        other.commit([part(store, "b")], [], app="r", version=0, epoch=1)
    assert reopen(store).properties["lsr_prod.x"] == "1"
