"""Merge the small parts of the quarantine: every cell with bad rows has written one.

Only waves that the sparse table has are merged: an attempt may still replace the bad rows of another wave. The newest
plan is left alone until it is finished, because its later cells name the parts of its earlier waves.
"""

import math

import pyarrow as pa
import pyarrow.compute as pc

from lsr_prod.encoding.commit.committer import waves_done
from lsr_prod.encoding.plans.increment import newest_plan
from lsr_prod.encoding.plans.saved import read_record
from lsr_prod.encoding.table import PLAN_PROPERTY
from lsr_prod.errors import ArtifactError
from lsr_prod.maintenance.compact import Merger, compact
from lsr_prod.maintenance.summaries import CompactionSummary
from lsr_prod.storage import Store
from lsr_prod.tables import Table, open_table
from lsr_prod.tables.file_table import partition_column

_ORDER = ("source", "position")
_PLAN, _WAVE = partition_column("plan"), partition_column("wave")


def is_quarantine(table: Table | None) -> bool:
    """Return whether a table is the quarantine of an encode job."""
    return table is not None and "plan" in table.partition_by


def compact_quarantine(
    quarantine: Store, table: Store, target_bytes: int, *, run: Merger | None = None, dry_run: bool = False
) -> CompactionSummary:
    """Merge the small parts of each committed wave; see ``compact``.

    Args:
        quarantine: folder of the quarantine.
        table: folder of the sparse table.
        target_bytes: size of a merged part.
        run: makes the merged parts.
        dry_run: count the merges, but write nothing.

    Raises:
        ArtifactError: there is no table, or a part is damaged.
        CommitError: other writers committed first, too many times.
    """
    sparse = open_table(table)
    if sparse is None:
        raise ArtifactError(f"{table.uri} is not a table; give a folder that lsr-prod encode wrote")
    busy = _unfinished_plan(sparse)

    def of_committed_waves(found: Table) -> pa.Table:
        files = found.file_table()
        plans = pc.unique(files[_PLAN]).to_pylist()
        done = pa.array([0 if plan == busy else waves_done(sparse, plan) for plan in plans], pa.int64())
        of_file = done.take(pc.index_in(files[_PLAN], value_set=pa.array(plans, files.schema.field(_PLAN).type)))
        return files.filter(pc.less(files[_WAVE].cast(pa.int64()), of_file))

    return compact(quarantine, target_bytes, run=run, files=of_committed_waves, order=_ORDER, dry_run=dry_run)


def _unfinished_plan(table: Table) -> str | None:
    """Return the newest plan of a sparse table, if it has waves left."""
    root = table.properties.get(PLAN_PROPERTY)
    if root is None:
        return None
    newest = newest_plan(table.store, root, lambda plan: waves_done(table, plan))
    record = read_record(table.store, newest)
    return newest if record is not None and waves_done(table, newest) < record.get("waves", math.inf) else None
