"""Merge the small parts of a sparse table and delete the files that nothing names.

    python jobs/maintain.py --config deployment.yaml [--maintain.dry_run true]

Reads the section ``maintain`` (and ``ray``, ``storage``). It may run beside encode jobs and readers: a merge is
committed only if nobody replaced its parts first, and what is younger than ``maintain.retention_hours`` is never
deleted. Ends with a table and one line ``RESULT {json}``; a dry run lists there what it would delete. Exit codes: 0
done, 1 failed, 2 bad configuration (nothing written).
"""

from collections.abc import Sequence

from lsr_prod.jobs.run import run_job
from lsr_prod.maintenance import maintain


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job; returns its exit code."""
    return run_job(
        lambda deployment: maintain(deployment).to_json(),
        job="jobs/maintain.py",
        description=__doc__,
        needs=("maintain",),
        argv=argv,
    )


if __name__ == "__main__":
    raise SystemExit(main())
