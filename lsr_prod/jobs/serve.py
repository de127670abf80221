"""Serve a published index from a Ray cluster and follow its publications.

    lsr-prod serve --config deployment.yaml [--local] [--serve.shard_groups 3 --serve.http_port 8000]

Reads the sections ``serve``, ``ray`` and ``storage``. Starts the application on the cluster of ``ray.address`` and
leaves it running; started again, it applies the new settings. With ``--local`` it starts a cluster on this machine that
listens on loopback only, serves until it is interrupted, and stops both.

Prints the table of deployments when queries are answered, and at the end one line ``RESULT {json}``.
Exit codes: 0 done, 1 failed, 2 bad configuration.
"""

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from lsr_prod.config import Deployment
from lsr_prod.jobs.terminal.run import Job, run_job
from lsr_prod.jobs.terminal.shell import CommandParser
from lsr_prod.jobs.terminal.tables import print_table
from lsr_prod.serving.job import serve_index


def _options() -> CommandParser:
    options = CommandParser("serve")
    options.add_argument("--local", action="store_true", help="serve on this machine until interrupted")
    return options


JOB = Job("serve", __doc__, needs=("serve",), options=_options())


def main(argv: Sequence[str]) -> int:
    """Run the job; returns its exit code."""
    return run_job(JOB, _serve, argv)


def _serve(deployment: Deployment, given: argparse.Namespace) -> Mapping[str, Any]:
    ready = partial(print_table, "serving until interrupted") if given.local else None
    return serve_index(deployment, local=given.local, ready=ready)
