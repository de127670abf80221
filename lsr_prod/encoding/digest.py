"""The table digest of a snapshot at the end of a job: a sum over the digests in the names of its parts."""

from collections.abc import Sequence

import pyarrow as pa

from lsr_prod.cluster.tasks import run_tasks
from lsr_prod.storage import Store
from lsr_prod.tables import Table, TableFile
from lsr_prod.tables.file_table import to_files
from lsr_prod.tables.part_digest import part_digest
from lsr_prod.tables.row_digest import combine_digests, digest_in_name

_FILES_PER_TASK = 64


def table_digest_on_ray(table: Table) -> str | None:
    """Return the ``table.table_digest`` of a snapshot, if no part has deleted rows.

    The digests of deleted rows are not known without reading their parts, and a job that changes a hundredth of the
    rows must not read all of them: ``table.table_digest`` does. Ray tasks read parts without a digest in their names,
    which another program wrote.

    Returns:
        64 hex digits; None: a part has deleted rows.
    """
    files = table.file_table()
    if files["deleted"].null_count < files.num_rows:
        return None
    named = [digest_in_name(path) for path in files["path"].to_pylist()]
    others = to_files(files.filter(pa.array([digest is None for digest in named], pa.bool_())))
    groups = [others[start : start + _FILES_PER_TASK] for start in range(0, len(others), _FILES_PER_TASK)]
    sums = run_tasks(_sum_of, [(table.store, group) for group in groups], task="digesting the table")
    return combine_digests([*(digest for digest in named if digest is not None), *(one for _, one in sums)])


def _sum_of(store: Store, files: Sequence[TableFile]) -> int:
    return sum(part_digest(store, file) for file in files)
