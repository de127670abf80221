"""The command ``encode``: from a corpus to a sparse table."""

import argparse
from collections.abc import Mapping
from functools import partial
from typing import Any

from lsr_prod.config import Deployment
from lsr_prod.encoding import check_encode, encode_corpus
from lsr_prod.errors import ConfigError
from lsr_prod.extras import contrib
from lsr_prod.jobs.terminal import shell, tables
from lsr_prod.operations.table_generations import follow_tables

_COUNTS = (
    "documents", "rows_in", "rows_out", "encoded", "unchanged", "deleted", "quarantined", "unread_bytes",
    "unread_share", "cut_documents", "clipped",
    "waves", "waves_skipped", "reused_cells",
)  # fmt: skip


def _add_options(parser: shell.CommandParser) -> None:
    parser.add_argument(
        "--abandon", metavar="PLAN", help="give up the newest plan, named by 8 or more digits of its digest"
    )
    parser.add_argument("--dry-run", action="store_true", help="print what the run would do, and write nothing")
    parser.add_argument(
        "--run",
        action="append",
        default=[],
        metavar="FILE",
        help="with --dry-run: output of a measured encode job, for the hours; may be repeated",
    )


def _print(summary: Mapping[str, Any]) -> None:
    if "files_to_read" in summary:
        contrib("estimates.dry_run").print_dry_run(summary)
    else:
        print_encoded(summary)


def _share_of_clipped(share: float, limit: float | None) -> float | str:
    """Return the share, and above its limit what it means."""
    if limit is None or share <= limit:
        return share
    return f"{share:.5f}, above gates.max_clipped_share = {limit:g}: encode the corpus into a new table"


def print_encoded(summary: Mapping[str, Any]) -> None:
    """Print counts, cost and location of an encode run, and its quarantined rows by reason."""
    run = dict(summary)
    counts = {name.replace("_", " "): run.pop(name) for name in _COUNTS}
    reasons = run.pop("quarantined_by_reason")
    counts["share of clipped"] = _share_of_clipped(run.pop("clipped_share"), run.pop("max_clipped_share"))
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
    tables.print_table("counts", counts)
    if reasons:
        tables.print_columns("quarantined rows", ("reason", "rows"), list(reasons.items()))
    tables.print_table("cost of this run", cost)
    tables.print_table("sparse table", run)


@partial(
    shell.Job,
    "encode",
    needs=("source", "encode"),
    optional=("gates",),
    add_options=_add_options,
    show=_print,
    pages=True,
)
def encode(deployment: Deployment, given: argparse.Namespace) -> Mapping[str, Any]:
    """Encode a corpus into a sparse table, exactly once.

        lsr-prod encode --config deployment.yaml [--encode.actors 8] [--abandon PLAN]
        lsr-prod encode --config deployment.yaml --dry-run [--run OUTPUT]
        ray job submit --working-dir . -- python jobs/encode.py --config deployment.yaml

    Reads the sections ``source``, ``encode``, ``gates``, ``ray`` and ``storage``. The corpus is cut into waves, each
    committed to the table as a whole. An interrupted job is resumed by the same command; a finished one has nothing to do.
    Bad rows are written to the quarantine table with their reason. If the source has changed since an interrupted run, a
    plan without a committed wave is superseded; one with some is continued with the former source, or given up with
    ``--abandon``.

    With ``--dry-run`` nothing is written: it prints the plan, its waves, parts and requests, and with the output of a
    measured run the hours (``lsr-prod table estimate`` has more); then the files, the columns with types and examples, the
    first documents as the model sees them, and what is wrong with the first 1,000 rows, with the setting that solves it.

    Prints tables of counts, cost and quarantined rows by reason, and one line ``RESULT {json}``.
    Exit codes: 0 done, 1 failed, 2 bad configuration (nothing was written).
    """
    if given.dry_run:
        if given.abandon:
            raise ConfigError("--abandon", "it changes the table, but --dry-run was given", "leave one of them out")
        work = check_encode(follow_tables(deployment))
        described: Mapping[str, Any] = contrib("estimates.dry_run").describe_run(work, given.run)
        return described
    if given.run:
        raise ConfigError("--run", "it is an option of --dry-run", "add --dry-run, or leave it out")
    return encode_corpus(follow_tables(deployment), abandon=given.abandon).result()
