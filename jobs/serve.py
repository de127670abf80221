"""Serve a published index from a Ray cluster, and follow its publications.

    python jobs/serve.py --config deployment.yaml [--local] [--serve.shard_groups 3 --serve.http_port 8000]

Reads the section ``serve`` (and ``ray``). Starts the application on the cluster of ``ray.address`` and leaves it there;
started again, it takes the new settings. With ``--local`` it starts a cluster on this machine that listens on loopback
only, serves until it is interrupted, and stops both. Prints the table of deployments when queries are answered; ends
with one line ``RESULT {json}``. Exit codes: 0 done, 1 failed, 2 bad configuration.
"""

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from lsr_prod.jobs.run import print_table, run_job
from lsr_prod.serving.job import serve_index


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job; returns its exit code."""
    given = list(sys.argv[1:] if argv is None else argv)
    local = "--local" in given
    work = partial(serve_index, local=local, ready=_show if local else None)
    return run_job(
        work,
        job="jobs/serve.py",
        description=__doc__,
        needs=("serve",),
        argv=[argument for argument in given if argument != "--local"],
    )


def _show(table: Mapping[str, Any]) -> None:
    print_table("serving until interrupted", table)
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
