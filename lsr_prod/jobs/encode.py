"""Encode a corpus into a sparse table, exactly once.

    lsr-prod encode --config deployment.yaml [--encode.actors 8] [--abandon PLAN]
    ray job submit --working-dir . -- python jobs/encode.py --config deployment.yaml

Reads the sections ``source``, ``encode``, ``ray`` and ``storage``. The corpus is cut into waves, and each wave is
committed to the table as a whole. An interrupted job is resumed by the same command; a finished one has nothing to do.
Bad rows are written to the quarantine table with their reason. If the source has changed since an interrupted run, a
plan without a committed wave is superseded; one with some is continued with the former source, or given up with
``--abandon``.

Prints tables of counts, cost and quarantined rows by reason, and one line ``RESULT {json}``.
Exit codes: 0 done, 1 failed, 2 bad configuration (nothing was written).
"""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from lsr_prod.config import Deployment
from lsr_prod.encoding import encode_corpus
from lsr_prod.jobs.run import Job, run_job
from lsr_prod.jobs.shell import CommandParser
from lsr_prod.jobs.tables import print_columns, print_table

__all__ = ["JOB", "main", "print_encoded"]


def _options() -> CommandParser:
    options = CommandParser("encode")
    options.add_argument(
        "--abandon", metavar="PLAN", help="give up the newest plan, named by 8 or more digits of its digest"
    )
    return options


JOB = Job("encode", __doc__, needs=("source", "encode"), options=_options())

_COUNTS = (
    "documents", "rows_in", "rows_out", "encoded", "unchanged", "deleted", "quarantined", "cut_documents", "clipped",
    "waves", "waves_skipped", "reused_cells",
)  # fmt: skip


def main(argv: Sequence[str]) -> int:
    """Run the job; returns its exit code."""
    return run_job(JOB, _encode, argv, print_encoded)


def _encode(deployment: Deployment, given: argparse.Namespace) -> Mapping[str, Any]:
    return encode_corpus(deployment, abandon=given.abandon).result()


def print_encoded(summary: Mapping[str, Any]) -> None:
    """Print counts, cost and location of an encode run, and its quarantined rows by reason."""
    seconds = summary["seconds"]
    run = dict(summary)
    counts = {name.replace("_", " "): run.pop(name) for name in _COUNTS}
    reasons = run.pop("quarantined_by_reason")
    seconds, tokens, cores = run.pop("seconds"), run.pop("tokens"), run.pop("actors") * run.pop("threads_per_actor")
    cost = {
        "seconds": seconds,
        "cores": cores,
        "documents per second": run.pop("docs_per_s"),
        "tokens": tokens,
        "tokens per second": tokens / seconds,
        "share of padding": run.pop("padding_share"),
        "seconds from first to last block": run.pop("encode_seconds"),
        "busy share of encoders": run.pop("busy_share"),
        "source bytes": run.pop("source_bytes"),
        "table bytes": run.pop("table_bytes"),
        "requests to stores": run.pop("requests"),
        "bytes read from stores": run.pop("bytes_read"),
        "bytes written to stores": run.pop("bytes_written"),
    }
    print_table("counts", counts)
    if reasons:
        print_columns("quarantined rows", ("reason", "rows"), list(reasons.items()))
    print_table("cost of this run", cost)
    print_table("sparse table", run)
