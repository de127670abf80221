"""Publish an earlier version of an index again, without documents that were taken down since.

    lsr-prod index rollback --config deployment.yaml --to 41

Reads the sections ``index`` and ``storage``. The version of publication 41 becomes current as a new publication;
takedowns stay in force.

Prints a table and one line ``RESULT {json}``. Exit codes: 0 done, 1 failed, 2 bad configuration.
"""

import argparse
import time
from collections.abc import Mapping, Sequence
from typing import Any

from lsr_prod.config import Deployment
from lsr_prod.errors import ConfigError
from lsr_prod.indexing import rollback
from lsr_prod.jobs.index_changes import index_to_change
from lsr_prod.jobs.terminal.run import Job, run_job
from lsr_prod.jobs.terminal.shell import CommandParser


def _options() -> CommandParser:
    options = CommandParser("index rollback")
    options.add_argument("--to", type=int, metavar="NUMBER", help="number of the publication to return to")
    return options


JOB = Job("index rollback", __doc__, needs=("index",), options=_options())


def main(argv: Sequence[str]) -> int:
    """Run the job; returns its exit code."""
    return run_job(JOB, _roll_back, argv)


def _roll_back(deployment: Deployment, given: argparse.Namespace) -> Mapping[str, Any]:
    began = time.perf_counter()
    if given.to is None:
        raise ConfigError("--to", "no publication is named", "give the number of an earlier publication")
    with index_to_change(deployment) as (index, workers):
        publication = rollback(index, given.to, workers)
    return {
        "from_publication": given.to,
        "version": publication.version,
        "publication": publication.number,
        "seconds": round(time.perf_counter() - began, 3),
    }
