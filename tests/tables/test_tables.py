"""What both sinks promise."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset
import pytest

from lsr_prod.errors import ArtifactError, CommitError, StorageError, TableConflictError
from lsr_prod.storage import Store
from lsr_prod.tables import Part, Sink, Table, create_table, open_table, write_part
from lsr_prod.tables.delta import create_delta
from lsr_prod.tables.manifest import create_manifest

SCHEMA = pa.schema(
    [
        pa.field("doc_id", pa.string(), nullable=False),
        pa.field("bucket", pa.int32(), nullable=False),
        pa.field("terms", pa.list_(pa.field("element", pa.int32(), nullable=False)), nullable=False),
        pa.field("title", pa.string()),
    ]
)


def make(store: Store, sink: Sink) -> Table:
    return create_table(store, sink, SCHEMA, ["bucket"], {"lsr_prod.a": "1"})


def part(store: Store, names: str, bucket: int = 0) -> tuple[Part, dict[str, str | None]]:
    rows = [{"doc_id": name, "terms": [1, 2], "title": None} for name in names]
    schema = SCHEMA.remove(1)
    return write_part(store, f"bucket={bucket}", pa.Table.from_pylist(rows, schema=schema)), {"bucket": str(bucket)}


def again(store: Store, version: int | None = None) -> Table:
    table = open_table(store, version)
    assert table is not None
    return table


def paths(table: Table) -> list[str]:
    return [file.path for file in table.files()]


def test_where_no_table_is_there_is_none(store: Store):
    assert open_table(store) is None
    store.put_new("photo.jpg", b"x")
    assert open_table(store) is None


def test_a_table_says_what_it_was_made_with(store: Store, sink: Sink):
    made = make(store, sink)
    assert (made.sink, made.version, made.partition_by, made.files()) == (sink, 0, ("bucket",), [])
    assert made.properties["lsr_prod.a"] == "1"
    assert made.schema.equals(SCHEMA)
    other = create_table(store, sink, SCHEMA, ["bucket"], {"lsr_prod.a": "2"})
    assert (other.version, other.properties["lsr_prod.a"]) == (0, "1")


def test_makers_at_once_get_one_table(store: Store, sink: Sink):
    def make_with(i: int) -> str:
        barrier.wait()
        return create_table(store, sink, SCHEMA, ["bucket"], {"lsr_prod.a": str(i)}).properties["lsr_prod.a"]

    barrier = threading.Barrier(6)
    with ThreadPoolExecutor(6) as pool:
        found = set(pool.map(make_with, range(6)))
    assert found == {again(store).properties["lsr_prod.a"]}
    assert again(store).version == 0


def test_a_maker_that_comes_late_changes_nothing(store: Store, sink: Sink):
    make(store, sink)
    again(store).commit([part(store, "a")], [], app="p", version=0, epoch=1)
    late = create_delta if sink == "delta" else create_manifest  # as if it had looked before the table was there
    late(store, SCHEMA, ["bucket"], {"lsr_prod.a": "2"})
    assert (again(store).version, again(store).properties["lsr_prod.a"]) == (1, "1")


def test_files_come_and_go_in_one_step_and_older_versions_stay(store: Store, sink: Sink):
    make(store, sink)
    first, second = part(store, "ab"), part(store, "c", 1)
    again(store).commit([first, second], [], app="p", version=0, epoch=1)
    third = part(store, "abd")
    again(store).commit([third], [first[0].path], app="p", version=1, epoch=1, data_change=False)
    table = again(store)
    assert [(file.path, file.size, file.rows, file.partition) for file in table.files()] == sorted(
        (one.path, one.size, one.rows, values) for one, values in (second, third)
    )
    assert table.transaction_version("p") == 1
    assert table.transaction_version("q") is None
    assert paths(again(store, 1)) == sorted([first[0].path, second[0].path])
    assert again(store, 0).transaction_version("p") is None
    assert table.added_since(0) == {first[0].path, second[0].path, third[0].path}
    assert table.added_since(1) == {third[0].path}
    assert [entry.version for entry in table.log()] == [0, 1, 2]
    with pytest.raises((ArtifactError, StorageError)):
        open_table(store, 9)


def test_a_snapshot_that_its_own_app_outdated_commits_nothing(store: Store, sink: Sink):
    make(store, sink)
    stale = again(store)
    again(store).commit([part(store, "a")], [], app="p", version=0, epoch=1)
    with pytest.raises(TableConflictError):
        stale.commit([part(store, "a", 1)], [], app="p", version=0, epoch=2)
    with pytest.raises(TableConflictError):
        stale.commit([], [], app="p", version=-1, epoch=2)
    assert again(store).version == 1


def test_two_snapshots_never_remove_the_same_file(store: Store, sink: Sink):
    make(store, sink)
    old = part(store, "a")
    again(store).commit([old], [], app="p", version=0, epoch=1)
    one, other = again(store), again(store)
    one.commit([part(store, "ab")], [old[0].path], app="x", version=0, epoch=1)
    with pytest.raises(TableConflictError):
        other.commit([part(store, "ac")], [old[0].path], app="y", version=0, epoch=1)
    with pytest.raises(TableConflictError, match="no longer has"):
        again(store).commit([part(store, "ac")], [old[0].path], app="y", version=0, epoch=1)
    assert sum(file.rows or 0 for file in again(store).files()) == 2


def test_a_removal_from_an_older_snapshot_is_refused_whatever_came_first(store: Store, sink: Sink):
    make(store, sink)
    old = part(store, "a")
    again(store).commit([old], [], app="p", version=0, epoch=1)
    stale = again(store)
    again(store).commit([part(store, "b")], [], app="p", version=1, epoch=1)
    with pytest.raises(TableConflictError):
        stale.commit([part(store, "ac")], [old[0].path], app="x", version=0, epoch=1)
    assert sum(file.rows or 0 for file in again(store).files()) == 2


def test_an_addition_is_refused_where_another_app_removed(store: Store, sink: Sink):
    """What keeps a running encode job apart from a compaction: it loads the table again and decides again."""
    make(store, sink)
    old = part(store, "a")
    again(store).commit([old], [], app="p", version=0, epoch=1)
    stale = again(store)
    again(store).commit([part(store, "ab")], [old[0].path], app="x", version=0, epoch=1)
    with pytest.raises(CommitError):
        stale.commit([part(store, "z")], [], app="p", version=1, epoch=1)


def test_plain_readers_read_the_files_of_either_sink(tmp_path: Path, sink: Sink):
    store = Store(str(tmp_path))
    make(store, sink)
    again(store).commit([part(store, "ab"), part(store, "c", 1)], [], app="p", version=0, epoch=1)
    part(store, "lost")  # written and not committed
    files = [f"{tmp_path}/{path}" for path in paths(again(store))]
    dataset = pyarrow.dataset.dataset(files, schema=SCHEMA, partitioning="hive", partition_base_dir=str(tmp_path))
    found = dataset.to_table(filter=pyarrow.dataset.field("bucket") < 2).to_pylist()
    assert sorted((row["doc_id"], row["bucket"]) for row in found) == [("a", 0), ("b", 0), ("c", 1)]


def test_two_logs_in_one_folder_are_refused(tmp_path: Path):
    make(Store(str(tmp_path)), "delta")
    make(Store(str(tmp_path / "other")), "parquet")
    (tmp_path / "other" / "_manifest").rename(tmp_path / "_manifest")
    with pytest.raises(ArtifactError, match="a Delta log and a manifest"):
        open_table(Store(str(tmp_path)))


def test_a_log_that_cannot_be_read_is_one_sentence(tmp_path: Path):
    make(Store(str(tmp_path)), "delta")
    (tmp_path / "_delta_log" / f"{0:020d}.json").write_text("no json")
    with pytest.raises(StorageError, match="cannot be opened as a Delta table"):
        open_table(Store(str(tmp_path)))
