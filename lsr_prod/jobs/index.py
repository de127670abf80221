"""Build an index version from a sparse table and publish it.

    lsr-prod index --config deployment.yaml [--index.shards 4]

Reads the sections ``index``, ``ray`` and ``storage``. Finished shards are reused: an interrupted job is resumed by the
same command, and a run without changes publishes nothing.

Prints a table and one line ``RESULT {json}``. Exit codes: 0 done, 1 failed, 2 bad configuration.
"""

from collections.abc import Sequence

from lsr_prod.indexing import build_index
from lsr_prod.jobs.terminal.run import Job, run_job

__all__ = ["JOB", "main"]

JOB = Job("index", __doc__, needs=("index",))


def main(argv: Sequence[str]) -> int:
    """Run the job; returns its exit code."""
    return run_job(JOB, lambda deployment: build_index(deployment).result(), argv)
