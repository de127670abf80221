"""Rows of committed parts that a wave deletes, and the deletion vectors that say so."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsr_prod.encoding.tables.live_rows import TableFile
from lsr_prod.errors import IncompleteWaveError
from lsr_prod.storage import Store
from lsr_prod.storage.deletion_vector import DeletionVector, Rows, check_vectors, deleted_rows, save_vectors


@dataclass(frozen=True, slots=True)
class Deletion:
    """Rows of a committed part that a wave deletes."""

    path: str  # of the part
    before: str | None  # ``DeletionVector.unique_id`` of the rows that were deleted in the snapshot; None: no row
    vector: DeletionVector  # these rows and those that the wave deletes
    rows: int  # number of rows that the wave deletes

    @property
    def rows_before(self) -> int:
        """Number of rows that were deleted in the snapshot."""
        return self.vector.rows - self.rows


def write_deletions(table: Store, files: Iterable[TableFile], to_delete: pa.Table) -> tuple[Deletion, ...]:
    """Write the deletion vectors of parts, each with the rows that are deleted already and those of a cell."""
    numbers: dict[str, Rows] = {}
    before: dict[str, str | None] = {}
    for file in files:
        rows = to_delete.filter(pc.equal(to_delete["path"], file.path))["row"].to_numpy().astype(np.uint32)
        if len(rows):
            old = [] if file.deleted is None else [deleted_rows(table, file.deleted)]
            numbers[file.path] = _union([*old, rows])
            before[file.path] = None if file.deleted is None else file.deleted.unique_id
    vectors = save_vectors(table, numbers)
    added = {entry["values"]: entry["counts"] for entry in pc.value_counts(to_delete["path"]).to_pylist()}
    return tuple(Deletion(path, before[path], vectors[path], added[path]) for path in sorted(vectors))


def merge_deletions(table: Store, deletions: Sequence[Deletion]) -> Deletion:
    """Return the deletion of all rows that the cells of a bucket delete from a part."""
    first = deletions[0]
    if len(deletions) == 1:
        return first
    rows = _union([deleted_rows(table, each.vector) for each in deletions])
    added = sum(each.rows for each in deletions)
    if len(rows) != first.rows_before + added or {each.before for each in deletions} != {first.before}:
        raise IncompleteWaveError(
            f"cells of one bucket delete {added} rows of {first.path}, but some of them are the same rows; nothing was "
            "committed, report this"
        )
    vector = save_vectors(table, {first.path: rows})[first.path]
    check_vectors(table, [vector])
    return Deletion(first.path, first.before, vector, added)


def _union(numbers: Sequence[Rows]) -> Rows:
    return np.unique(np.concatenate(numbers)).astype(np.uint32)
