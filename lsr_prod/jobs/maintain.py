"""Merge small parts of a sparse table and delete files that nothing refers to.

    lsr-prod maintain --config deployment.yaml [--maintain.dry_run true]

Reads the sections ``maintain``, ``ray`` and ``storage``. It may run while encode jobs and readers use the table: a
merge is committed only if its parts have not been replaced, and files younger than ``maintain.retention_hours`` are
never deleted. A dry run lists in ``RESULT`` what would be deleted.

Prints a table and one line ``RESULT {json}``.
Exit codes: 0 done, 1 failed, 2 bad configuration (nothing was written).
"""

from collections.abc import Sequence

from lsr_prod.jobs.terminal.run import Job, run_job
from lsr_prod.maintenance import maintain

__all__ = ["JOB", "main"]

JOB = Job("maintain", __doc__, needs=("maintain",))


def main(argv: Sequence[str]) -> int:
    """Run the job; returns its exit code."""
    return run_job(JOB, lambda deployment: maintain(deployment).result(), argv)
