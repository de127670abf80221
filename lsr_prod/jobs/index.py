"""Build an index version from a sparse table and publish it.

    lsr-prod index build --config deployment.yaml [--index.shards 4] [--force GATE --reason TEXT]

Reads the sections ``index``, ``gates``, ``encode``, ``ray`` and ``storage``. Finished shards are reused: an interrupted
job is resumed by the same command, and a run without changes publishes nothing. A version that a gate refuses is kept,
but not published; ``--force`` overrules a gate, which the publication records with the reason.

Prints the gates, a table and one line ``RESULT {json}``. Exit codes: 0 done, 1 failed, 2 bad configuration.
"""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from lsr_prod.config import Deployment
from lsr_prod.indexing import build_index
from lsr_prod.jobs.terminal.gates import force_options, gate_rows, print_gates
from lsr_prod.jobs.terminal.report import index_pages
from lsr_prod.jobs.terminal.run import Job, run_job, scalars
from lsr_prod.jobs.terminal.tables import print_table
from lsr_prod.operations.gates import Gatekeeper
from lsr_prod.operations.table_generations import follow_tables

JOB = Job(
    "index build",
    __doc__,
    needs=("index",),
    optional=("gates", "encode"),
    options=force_options("index build"),
    pages=index_pages,
)


def main(argv: Sequence[str]) -> int:
    """Run the job; returns its exit code."""
    return run_job(JOB, _index, argv, _show)


def _index(deployment: Deployment, given: argparse.Namespace) -> Mapping[str, Any]:
    deployment = follow_tables(deployment)
    gatekeeper = Gatekeeper(deployment, given.force, given.reason)
    try:
        summary = build_index(deployment, gatekeeper).result()
    finally:
        print_gates(gatekeeper.reports)
    return {**summary, "gates": gate_rows(gatekeeper.reports)}


def _show(summary: Mapping[str, Any]) -> None:
    print_table("lsr-prod index build", scalars(summary))
