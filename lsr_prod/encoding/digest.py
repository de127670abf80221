"""The table digest of a snapshot: a sum over the digests in the names of its parts."""

from collections.abc import Sequence

from lsr_prod.cluster.tasks import run_tasks
from lsr_prod.storage import Store
from lsr_prod.tables import Table
from lsr_prod.tables.row_digest import combine_digests, digest_in_name, file_digest

__all__ = ["table_digest_on_ray"]

_FILES_PER_TASK = 64


def table_digest_on_ray(table: Table) -> str:
    """Return the ``table.table_digest`` of a snapshot; Ray tasks read files that have no digest in their names.

    Such files were written by an earlier release or by another program.

    Args:
        table: a snapshot of a sparse table.

    Returns:
        64 hex digits.
    """
    named = {path: digest_in_name(path) for path in table.file_table()["path"].to_pylist()}
    paths = [path for path, found in named.items() if found is None]
    groups = [paths[start : start + _FILES_PER_TASK] for start in range(0, len(paths), _FILES_PER_TASK)]
    sums = run_tasks(_sum_of, [(table.store, group) for group in groups], task="digesting the table")
    return combine_digests([*(found for found in named.values() if found is not None), *(one for _, one in sums)])


def _sum_of(store: Store, paths: Sequence[str]) -> int:
    return sum(file_digest(store, path) for path in paths)
