"""Deletion vectors of a cell: the committed rows of its ids that the wave replaces or removes."""

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsr_prod.encoding.results import Deletion
from lsr_prod.errors import IncompleteWaveError
from lsr_prod.storage import Store
from lsr_prod.tables import TableFile
from lsr_prod.tables.deletion_vector import Rows, check_vectors, deleted_rows, save_vectors


def write_deletions(table: Store, files: Iterable[TableFile], going: pa.Table) -> tuple[Deletion, ...]:
    """Write the deletion vectors of parts, each with the rows that are deleted already and those of a cell."""
    numbers: dict[str, Rows] = {}
    before: dict[str, str | None] = {}
    for file in files:
        rows = going.filter(pc.equal(going["path"], file.path))["row"].to_numpy().astype(np.uint32)
        if len(rows):
            old = [] if file.deleted is None else [deleted_rows(table, file.deleted)]
            numbers[file.path] = _union([*old, rows])
            before[file.path] = None if file.deleted is None else file.deleted.unique_id
    vectors = save_vectors(table, numbers)
    added = {entry["values"]: entry["counts"] for entry in pc.value_counts(going["path"]).to_pylist()}
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
