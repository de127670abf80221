"""Build an index version from the sparse table, and publish it.

    python jobs/index.py --config deployment.yaml [--index.shards 4]

Reads the section ``index`` (and ``ray``, ``storage``). A shard that is already there is reused, so that a run after a
kill goes on where the last one ended, and a run without changes publishes nothing. Ends with a table and one line
``RESULT {json}``. Exit codes: 0 done, 1 failed, 2 bad configuration.
"""

from collections.abc import Sequence

from lsr_prod.indexing import build_index
from lsr_prod.jobs.run import run_job


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job; returns its exit code."""
    return run_job(
        lambda deployment: build_index(deployment).to_json(),
        job="jobs/index.py",
        description=__doc__,
        needs=("index",),
        argv=argv,
    )


if __name__ == "__main__":
    raise SystemExit(main())
