"""The table digest, computed by Ray tasks: it is a sum over files, so files can be digested in any order."""

from collections.abc import Sequence

from lsr_prod.cluster.tasks import run_tasks
from lsr_prod.encoding.table import combine_digests, file_digest
from lsr_prod.storage import Store
from lsr_prod.tables import Table

__all__ = ["table_digest_on_ray"]

_FILES_PER_TASK = 64


def table_digest_on_ray(table: Table) -> str:
    """Return the ``table.table_digest`` of a snapshot.

    Args:
        table: a snapshot of a sparse table.

    Returns:
        64 hex digits.
    """
    paths = [file.path for file in table.files()]
    groups = [paths[start : start + _FILES_PER_TASK] for start in range(0, len(paths), _FILES_PER_TASK)]
    sums = run_tasks(_sum_of, [(table.store, group) for group in groups], task="digesting the table")
    return combine_digests([digest for _, digest in sums])


def _sum_of(store: Store, paths: Sequence[str]) -> int:
    return sum(file_digest(store, path) for path in paths)
