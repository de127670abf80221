"""The command ``index canary``, and the comparison of two indexes for its page."""

import argparse
import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from lsr_prod.credentials import without_credentials
from lsr_prod.errors import ConfigError
from lsr_prod.evaluation.collection import read_qrels
from lsr_prod.jobs.terminal.output import log_to_stderr, print_result
from lsr_prod.jobs.terminal.run import scalars
from lsr_prod.jobs.terminal.shell import Command, CommandParser, add_store_option, location, store_options
from lsr_prod.jobs.terminal.tables import print_columns, print_table
from lsr_prod.operations.canary import CanarySettings, Judge, open_side, read_queries, run_canary
from lsr_prod.storage.folders import file_exists, store_file

_MAX_K = 1_000
_SHOWN = 10  # queries and terms in a table


def add_sides(parser: CommandParser, *, required: bool) -> None:
    """Add the options that ``compare_sides`` reads."""
    side = "folder or URI of an index, with @NUMBER at a publication: the side"
    parser.add_argument("--a", required=required, type=location, metavar="INDEX", help=f"{side} in use")
    parser.add_argument("--b", required=required, type=location, metavar="INDEX", help=f"{side} that may replace it")
    parser.add_argument("--queries", required=required, type=location, metavar="FILE", help="queries, file or URI")
    parser.add_argument("--qrels", type=location, metavar="FILE", help="relevance judgments, file or URI")
    parser.add_argument("--measure", metavar="NAME", help="measure, as named by ir_measures (default: nDCG@k)")
    parser.add_argument("--k", type=int, default=10, metavar="N", help="hits per query to compare (default: 10)")
    parser.add_argument(
        "--threshold", type=float, default=0.0, metavar="X", help="overlap threshold, 0..1 (default: 0, off)"
    )
    parser.add_argument(
        "--rows", type=int, default=1_000, metavar="N", help="queries to keep, those that changed most (default: 1000)"
    )


def compare_sides(given: argparse.Namespace) -> dict[str, Any]:
    """Run the comparison that the options of ``add_sides`` name; return the content of ``canary.json``."""
    _check(given)
    options = store_options(given)
    for name in ("queries", "qrels"):
        place = getattr(given, name)
        if place is not None and not file_exists(place, options):
            raise ConfigError(
                f"--{name}", f"there is no file at {without_credentials(place)}", "give a path or URI that exists"
            )
    judge = None  # built before an index is opened, since it validates the measure
    if given.qrels is not None:
        judge = Judge(given.measure or f"nDCG@{given.k}", read_qrels(given.qrels, options))
    settings = CanarySettings(k=given.k, threshold=given.threshold, count=True, rows=given.rows)
    names = (without_credentials(given.a), without_credentials(given.b))
    with open_side(given.a, options) as a, open_side(given.b, options) as b:
        queries = read_queries(given.queries, options)
        return run_canary(a, b, queries, settings, names=names, judge=judge).result()


def _check(given: argparse.Namespace) -> None:
    if not 1 <= given.k <= _MAX_K:
        raise ConfigError("--k", f"{given.k} is not possible", f"give an integer from 1 to {_MAX_K:,}")
    if not 0 <= given.threshold <= 1:
        raise ConfigError("--threshold", f"{given.threshold:g} is not possible", "give a share of the terms, 0..1")
    if given.rows < 1:
        raise ConfigError("--rows", f"{given.rows} is not possible", "give an integer, 1 or more")
    if given.measure and given.qrels is None:
        raise ConfigError("--measure", "there are no judgments", "give --qrels FILE, or leave --measure out")


def _print(found: Mapping[str, Any]) -> None:
    print_table("lsr-prod index canary", scalars(found))
    a, b = found["sides"]["a"], found["sides"]["b"]
    print_columns("sides", ("", "a", "b"), [[name, a[name], b[name]] for name in a])
    rows = [
        [row["query_id"], row["text"], *(row[name] for name in ("overlap", "rbo", "entered", "left")),
         row["value_a"], row["value_b"]]
        for row in found["rows"][:_SHOWN]
        if row["change"] > 0
    ]  # fmt: skip
    if rows:
        heads = ("query", "text", "overlap", "rbo", "entered", "left", "value a", "value b")
        print_columns("queries that changed most", heads, rows)
    if terms := found["terms"][:_SHOWN]:
        drifts = [[each["term"], each["weight_a"], each["weight_b"], each["drift"]] for each in terms]
        print_columns("query terms that drifted most", ("term", "weight a", "weight b", "drift"), drifts)


def _add_options(parser: CommandParser) -> None:
    add_sides(parser, required=True)
    add_store_option(parser)
    parser.add_argument("--output", type=location, metavar="DIR", help="folder or URI for canary.json")


@partial(Command, "index canary", add_options=_add_options)
def canary(given: argparse.Namespace) -> None:
    """Compare two indexes, or two versions of one, on the same queries.

        lsr-prod index canary --a INDEX@41 --b INDEX --queries FILE [--qrels FILE] [--k 10] [--output DIR]

    A is the side in use, B the side that may replace it: folders or URIs of indexes, with ``@NUMBER`` at an earlier
    publication, else at the current one. Queries and judgments have the formats of ``evaluate``. Writes ``canary.json``
    if ``--output`` names a folder, which ``lsr-prod inspect side-by-side`` shows.

    Prints tables and one line ``RESULT {json}``.
    Exit codes: 0 done, 1 failed, 2 bad usage (nothing was written).
    """
    if given.output is not None and Path(given.output).is_file():
        raise ConfigError("--output", f"{given.output} is a file", "give a folder")
    log_to_stderr()
    found = compare_sides(given)
    _print(found)
    summary = {**scalars(found), "sides": found["sides"]}
    if given.output is not None:
        place = f"{given.output.rstrip('/')}/canary.json"
        store_file(place, json.dumps(found, ensure_ascii=False, allow_nan=False).encode(), store_options(given))
        summary["output"] = place
    print_result(summary)
