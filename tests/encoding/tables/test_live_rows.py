"""Rows of parts that are not deleted, read by us and by other programs."""

from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pytest

from lsr_prod.encoding.tables import TableFile, live_batches, read_all_rows, read_part
from lsr_prod.encoding.tables.live_rows import deleted_batches, total, total_live_rows, vector_files
from lsr_prod.errors import ArtifactError
from lsr_prod.storage import Store
from lsr_prod.storage.deletion_vector import DeletionVector, deleted_rows, save_vectors
from tests.docs.code_blocks import delta_extension
from tests.encoding.tables.deletions import delete_ids
from tests.encoding.tables.test_tables import SCHEMA, make, part, reopen


def ids(batches) -> str:
    return "".join(name for batch in batches for name in batch["doc_id"].to_pylist())


@pytest.fixture
def folder(tmp_path: Path) -> Store:
    return Store(str(tmp_path))


def test_deleted_rows_are_left_out(folder: Store):
    make(folder).commit([part(folder, "abcdefg"), part(folder, "xyz", 1)], [], app="p", version=0, epoch=1)
    delete_ids(folder, "bdgxyz")
    files = reopen(folder).files()
    assert [ids([read_part(folder, file, SCHEMA.remove(1))]) for file in files] == ["acef", ""]
    assert [ids([read_all_rows(folder, file.path)]) for file in files] == ["abcdefg", "xyz"]
    for rows in (1, 2, 3, 100):
        assert [ids(live_batches(folder, file, ["doc_id"], rows)) for file in files] == ["acef", ""]
        assert [ids(deleted_batches(folder, file, ["doc_id"], rows)) for file in files] == ["bdg", "xyz"]
    assert [(file.rows, file.live_rows) for file in files] == [(7, 4), (3, 0)]
    assert (total(reopen(folder).file_table(), "rows"), total_live_rows(reopen(folder).file_table())) == (10, 4)


def test_vector_without_rows_deletes_none_and_a_missing_part_is_an_error(folder: Store):
    added = part(folder, "ab")
    make(folder).commit([added], [], app="p", version=0, epoch=1)
    none = save_vectors(folder, {added[0].path: np.empty(0, np.uint32)})
    reopen(folder).commit([], [], app="q", version=0, epoch=1, deletions=none)
    (file,) = reopen(folder).files()
    assert ids([read_part(folder, file, SCHEMA.remove(1))]) == "ab"
    assert ids(live_batches(folder, file, ["doc_id"], 1)) == "ab"
    assert ids(deleted_batches(folder, file, ["doc_id"], 1)) == ""
    folder.delete(file.path)
    with pytest.raises(ArtifactError, match=r"cannot be read .*; encode the table again"):
        ids(live_batches(folder, file, ["doc_id"], 1))


def test_vector_that_names_rows_beyond_the_part_is_an_error(folder: Store):
    added = part(folder, "ab")
    make(folder).commit([added], [], app="p", version=0, epoch=1)
    path = added[0].path
    wrong = save_vectors(folder, {path: np.array([0, 2], np.uint32)})
    reopen(folder).commit([], [], app="q", version=0, epoch=1, deletions=wrong)
    (file,) = reopen(folder).files()
    with pytest.raises(ArtifactError, match=r"row 2 of .* is deleted, but it has 2 rows"):
        read_part(folder, file)
    with pytest.raises(ArtifactError, match=r"row 2 of .* is deleted, but it has 2 rows"):
        list(live_batches(folder, file, ["doc_id"], 2))


def test_file_of_vectors_is_listed_once(folder: Store):
    parts = [part(folder, f"{'ab'[bucket]}", bucket) for bucket in range(2)]
    make(folder).commit(parts, [], app="p", version=0, epoch=1)
    rows = np.arange(0, 2000, 2, dtype=np.uint32)
    vectors = save_vectors(folder, {one.path: rows for one, _ in parts})
    assert len({(vector.data, vector.offset) for vector in vectors.values()}) == 2
    reopen(folder).commit([], [], app="q", version=0, epoch=1, deletions=vectors)
    (name,) = vector_files(reopen(folder).file_table())
    assert folder.entry(name) is not None
    assert name in reopen(folder).added_since(1)
    assert [len(deleted_rows(folder, file.deleted)) for file in reopen(folder).files()] == [1000, 1000]


def test_file_without_a_row_count_has_no_number_of_live_rows():
    vector = DeletionVector("u", "x", 1, 1, 3)
    assert TableFile("a", 1, None, {}).live_rows is None
    assert TableFile("a", 1, None, {}, vector).live_rows is None
    assert (TableFile("a", 1, 4, {}).live_rows, TableFile("a", 1, 4, {}, vector).live_rows) == (4, 1)


@pytest.fixture
def with_deletions(folder: Store) -> str:
    """Return the folder of a Delta table of a, c, e and f."""
    make(folder).commit([part(folder, "abcdefg")], [], app="p", version=0, epoch=1)
    delete_ids(folder, "bd")
    delete_ids(folder, "g")
    return folder.location


def test_polars_reads_no_deleted_rows(with_deletions: str):
    assert sorted(pl.read_delta(with_deletions)["doc_id"]) == list("acef")


def test_duckdb_reads_no_deleted_rows(with_deletions: str):
    connection = duckdb.connect(config={"allow_unsigned_extensions": True})
    connection.execute(f"LOAD '{delta_extension()}'")
    found = connection.execute(f"SELECT doc_id FROM delta_scan('{with_deletions}')").fetchall()
    assert sorted(name for (name,) in found) == list("acef")
