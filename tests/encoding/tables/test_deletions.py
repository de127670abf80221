"""Deleted rows of parts, local and on S3: committed, kept by checkpoints, conflicts, foreign readers."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder

from lsr_prod.encoding.tables import Table, create_table, deletions
from lsr_prod.errors import ArtifactError, TableConflictError
from lsr_prod.storage import Store, delta_log
from lsr_prod.storage.deletion_vector import deleted_rows, save_vectors
from lsr_prod.storage.delta_log import read_actions
from tests.encoding.tables.test_tables import SCHEMA, make, part, reopen


def add(table: Table, names: str, app: str = "first", version: int = 0) -> str:
    added = part(table.store, names)
    table.commit([added], [], app=app, version=version, epoch=1)
    return added[0].path


def delete(table: Table, path: str, rows: list[int], app: str = "night", version: int = 0, **others) -> None:
    vectors = save_vectors(table.store, {path: np.array(rows, np.uint32)})
    table.commit([], [], app=app, version=version, epoch=1, deletions=vectors, **others)


def deleted(table: Table) -> dict[str, list[int]]:
    return {file.path: deleted_rows(table.store, file.deleted).tolist() for file in table.files() if file.deleted}


def rows_for_others(store: Store) -> int:
    query = QueryBuilder().register("t", DeltaTable(store.location, storage_options=store.delta_options))
    return pa.table(query.execute("select count(doc_id) as n from t").read_all())["n"][0].as_py()


def test_rows_are_deleted_and_older_versions_keep_them(store: Store):
    path = add(make(store), "abcd")
    before = reopen(store)
    delete(before, path, [1])
    delete(reopen(store), path, [1, 3], version=1)
    assert deleted(reopen(store)) == {path: [1, 3]}
    assert deleted(reopen(store, before.version)) == {}
    assert reopen(store).files()[0].rows == 4
    assert rows_for_others(store) == 2


def test_removed_part_with_deleted_rows_is_gone(store: Store):
    path = add(make(store), "abcd")
    delete(reopen(store), path, [1])
    new = part(store, "acd")
    reopen(store).commit([new], [path], app="fold", version=0, epoch=1, data_change=False)
    assert [file.path for file in reopen(store).files()] == [new[0].path]
    assert deleted(reopen(store)) == {}
    assert rows_for_others(store) == 3


def test_deletion_from_a_stale_snapshot_is_rejected(store: Store):
    path = add(make(store), "abcd")
    stale = reopen(store)
    add(reopen(store), "ef", "other")
    with pytest.raises(TableConflictError):
        delete(stale, path, [1])


@pytest.mark.parametrize("app", ["night", "other"])
def test_commit_from_a_snapshot_before_a_deletion_is_rejected(store: Store, app: str):
    path = add(make(store), "abcd")
    stale = reopen(store)
    stale.transaction_version(app)
    delete(reopen(store), path, [1])
    for removes in ([path], []):
        with pytest.raises(TableConflictError):
            stale.commit([part(store, "ef")], removes, app=app, version=0, epoch=1)


def test_checkpoints_keep_deleted_rows(store: Store):
    path = add(make(store), "abcd")
    delete(reopen(store), path, [2])
    DeltaTable(store.location, storage_options=store.delta_options).create_checkpoint()
    for number in range(16):
        add(reopen(store), f"x{number}", "more", number)
    checkpoints = [name for name in store.names() if "checkpoint.parquet" in name]
    assert checkpoints
    assert deleted(reopen(store)) == {path: [2]}
    for name in store.names("_delta_log"):
        number = name.rpartition("/")[2][:20]
        if name.endswith(".json") and number.isdigit() and 0 < int(number) <= 2:
            store.delete(name)  # the state comes from the checkpoint
    assert deleted(reopen(store)) == {path: [2]}


def test_checkpoint_follows_a_commit_with_deletions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(deletions, "CHECKPOINT_EVERY", 3)
    store = Store(str(tmp_path))
    path = add(make(store), "abcd")
    for number in range(3):
        delete(reopen(store), path, [*range(number + 1)], version=number)
    assert [name.rpartition("/")[2] for name in store.names("_delta_log") if "checkpoint." in name] == [
        f"{3:020d}.checkpoint.parquet"
    ]
    assert deleted(reopen(store)) == {path: [0, 1, 2]}


def test_older_version_than_the_checkpoint_is_read_from_its_commits(tmp_path: Path):
    store = Store(str(tmp_path))
    path = add(make(store), "abcd")
    delete(reopen(store), path, [0])
    delete(reopen(store), path, [0, 1], version=1)
    DeltaTable(store.location).create_checkpoint()
    (tmp_path / "_delta_log" / "stray.checkpoint.parquet").touch()
    assert deleted(reopen(store, 2)) == {path: [0]}
    assert deleted(reopen(store)) == {path: [0, 1]}


def test_checkpoint_without_vectors_has_none_and_a_damaged_one_is_an_error(tmp_path: Path):
    store = Store(str(tmp_path))
    path = add(make(store), "abcd")
    delete(reopen(store), path, [3])
    saved = tmp_path / "_delta_log" / f"{1:020d}.checkpoint.parquet"
    pq.write_table(pa.table({"add": [{"path": path, "size": 1}]}), saved)
    assert delta_log.deletion_vectors(store, 1) == {}
    assert [*delta_log.deletion_vectors(store, 2)] == [path]
    saved.write_bytes(b"PAR1 and no more")
    with pytest.raises(ArtifactError, match=r"checkpoint\.parquet is damaged \(.*\); restore it"):
        delta_log.deletion_vectors(store, 2)


def test_vector_of_a_file_that_delta_rs_does_not_list_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    store = Store(str(tmp_path))
    path = add(make(store), "abcd")
    delete(reopen(store), path, [1])
    found = delta_log.deletion_vectors(store, 2)
    monkeypatch.setattr(delta_log, "deletion_vectors", lambda *_: {**found, "bucket=0/other.parquet": found[path]})
    with pytest.raises(ArtifactError, match="deletes rows of files that the table does not have"):
        reopen(store).files()


def test_table_without_deletions_is_readable_without_deletion_vectors(tmp_path: Path):
    store = Store(str(tmp_path))
    path = add(make(store), "abcd")
    assert DeltaTable(store.location).protocol().min_reader_version == 1
    delete(reopen(store), path, [1])
    assert DeltaTable(store.location).protocol().reader_features == ["deletionVectors"]


def test_named_features_of_a_table_are_kept(tmp_path: Path):
    store = Store(str(tmp_path))
    make(store)
    log = tmp_path / "_delta_log" / f"{0:020d}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "protocol" in action:
            action["protocol"] = {"minReaderVersion": 3, "minWriterVersion": 7}
            action["protocol"] |= {"readerFeatures": ["timestampNtz"], "writerFeatures": ["timestampNtz", "appendOnly"]}
    log.write_text("".join(json.dumps(action) + "\n" for action in actions))
    path = add(reopen(store), "abcd")
    delete(reopen(store), path, [1])
    protocol = DeltaTable(store.location).protocol()
    assert {*protocol.reader_features} == {"timestampNtz", "deletionVectors"}
    assert {*protocol.writer_features} == {"timestampNtz", "appendOnly", "deletionVectors"}


def test_first_deletion_adds_its_feature_to_those_of_the_table(tmp_path: Path):
    store = Store(str(tmp_path))
    create_table(store, SCHEMA, ["bucket"], {"delta.enableChangeDataFeed": "true"})
    path = add(reopen(store), "abcd")
    before = DeltaTable(store.location)
    delete(reopen(store), path, [1])
    delete(reopen(store), path, [1, 2], version=1)
    after = DeltaTable(store.location)
    assert before.protocol().min_writer_version == 4
    wanted = {"appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "deletionVectors"}
    assert {*after.protocol().writer_features} == wanted
    assert after.schema() == before.schema()
    assert after.metadata().configuration == {
        **before.metadata().configuration,
        "delta.enableDeletionVectors": "true",
    }
    assert [
        ["protocol" in one or "metaData" in one for one in read_actions(store, at)].count(True) for at in (2, 3)
    ] == [
        2,
        0,
    ]
