"""Merge small parts of a sparse table and its quarantine, drop deleted rows, and delete files that nothing needs.

    lsr-prod table maintain --config deployment.yaml [--maintain.dry_run true] [--maintain.purge true]

Reads the sections ``maintain``, ``ray`` and ``storage``. It may run while encode jobs and readers use the table: a
merge is committed only if its parts have not been replaced, and files younger than ``maintain.retention_hours`` are
never deleted: parts that no kept version names, drafts, markers of finished cells, plans that newer ones follow, and
the log of versions that are not kept. Parts of which half of the rows are deleted are written again without these rows,
with ``maintain.purge`` all parts with deleted rows. A dry run counts the merges, and lists in ``RESULT`` what would be
deleted.

Prints tables and one line ``RESULT {json}``.
Exit codes: 0 done, 1 failed, 2 bad configuration (nothing was written).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from lsr_prod.config import Deployment
from lsr_prod.jobs.terminal.run import Job, run_job, scalars
from lsr_prod.jobs.terminal.tables import print_columns, print_table
from lsr_prod.operations.maintenance import maintain
from lsr_prod.operations.table_generations import follow_maintained_table

JOB = Job("table maintain", __doc__, needs=("maintain",))


def main(argv: Sequence[str]) -> int:
    """Run the job; returns its exit code."""
    return run_job(JOB, _maintain, argv, _print)


def _maintain(deployment: Deployment) -> Mapping[str, Any]:
    followed = follow_maintained_table(deployment)
    assert followed.maintain is not None
    return {"table": followed.maintain.table, **maintain(followed).result()}


def _print(summary: Mapping[str, Any]) -> None:
    print_table("lsr-prod table maintain", scalars(summary))
    if summary["garbage_by_kind"]:
        kinds = [(kind.replace("_", " "), number) for kind, number in summary["garbage_by_kind"].items()]
        title = "files that would be deleted" if summary["dry_run"] else "deleted files"
        print_columns(title, ("kind", "files"), kinds)
