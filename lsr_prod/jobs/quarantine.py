"""Show the rows of a quarantine: bad rows with their reason and their place in the source.

    lsr-prod table quarantine QUARANTINE [--reason broken_json] [--source a.jsonl] [--plan PLAN] [--wave 3] [--raw]
    lsr-prod table quarantine --config deployment.yaml [--json]

QUARANTINE is the folder or URI of ``encode.quarantine``, by default that of the table with ``_quarantine``; folders of
bad rows of other jobs can be shown too. Rows of a wave that the job did not commit, for example because more than
``encode.max_bad_fraction`` of the rows were bad, have the state ``not committed``. The bytes of a row are shown only
with ``--raw``; control characters are always escaped.

Prints a table of counts and a table of rows, or one JSON object per row with ``--json`` (all rows unless ``--limit`` is
given). Exit codes: 0 done, 1 failed, 2 bad usage or bad configuration.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from lsr_prod.errors import ConfigError
from lsr_prod.jobs.terminal.output import print_json, say
from lsr_prod.jobs.terminal.shell import CommandParser, add_store_option, exit_code, location, store_options
from lsr_prod.visible import visible

_LIMIT = 20
_SHOWN = 100  # characters of a text in a cell of the table


def parser() -> CommandParser:
    """Return the parser of the command line."""
    options = CommandParser("table quarantine", __doc__)
    options.add_argument("quarantine", metavar="QUARANTINE", nargs="?", type=location, help="its folder or URI")
    options.add_argument("--config", metavar="FILE", help="YAML file of the deployment, instead of QUARANTINE")
    options.add_argument("--reason", metavar="REASON", help="only rows with this reason")
    options.add_argument("--source", metavar="TEXT", help="only rows whose source file has this text in its location")
    options.add_argument("--plan", metavar="PLAN", help="only rows of the plan whose digest begins so")
    options.add_argument("--wave", metavar="N", type=_number, help="only rows of this wave")
    options.add_argument("--limit", metavar="N", type=_number, help=f"rows to show (default {_LIMIT}, or all as JSON)")
    options.add_argument("--raw", action="store_true", help="show the first bytes of the rows too")
    options.add_argument("--json", action="store_true", help="print one JSON object per row")
    add_store_option(options)
    return options


def main(argv: Sequence[str]) -> int:
    """Show the rows; returns the exit code."""
    return exit_code("table quarantine", lambda: _show(argv))


def _show(argv: Sequence[str]) -> None:
    given = parser().parse_args(argv)
    if (given.quarantine is None) == (given.config is None):
        raise ConfigError("command line", "give either QUARANTINE or --config", "see lsr-prod table quarantine --help")
    uri, options = _place(given)
    from lsr_prod.operations.quarantine import QuarantineFilter, read_quarantine
    from lsr_prod.storage import Store

    wanted = QuarantineFilter(given.reason, given.source, given.plan, given.wave)
    rows: list[dict[str, Any]] = []
    limit = given.limit if given.limit is not None else sys.maxsize if given.json else _LIMIT

    def show(row: dict[str, Any]) -> None:
        row = row if given.raw else {name: value for name, value in row.items() if name != "raw"}
        if given.json:
            print_json(row)
        else:
            rows.append(row)

    counts = read_quarantine(Store(uri, options), wanted, show, limit)
    if not given.json:
        _print(counts, rows)


def _place(given: argparse.Namespace) -> tuple[str, dict[str, str]]:
    options = store_options(given)
    if given.config is None:
        return given.quarantine, options
    from lsr_prod.config import load_deployment
    from lsr_prod.config.location import quarantine_uri
    from lsr_prod.operations.table_generations import follow_tables
    from lsr_prod.storage.folders import absolute

    arguments = ["--config", given.config]
    deployment = load_deployment(arguments, job="lsr-prod table quarantine", description="", needs=("encode",))
    options = {**deployment.storage.options, **options}
    encode = follow_tables(deployment, options).encode
    assert encode is not None
    place = absolute(quarantine_uri(encode.quarantine, encode.table))
    return place, options


def _print(counts: dict[tuple[str, str], int], rows: Sequence[dict[str, Any]]) -> None:
    from lsr_prod.jobs.terminal.tables import print_columns

    if not counts:
        say("no row matches")
        return
    found = [(reason, state, count) for (reason, state), count in sorted(counts.items())]
    print_columns("quarantined rows", ("reason", "state", "rows"), found)
    if not rows:
        return
    names = [name for name in rows[0] if name != "source_file"]
    cells = [[_cell(name, row[name]) for name in names] for row in rows]
    print_columns("rows", [name.replace("_", " ") for name in names], cells)
    total = sum(counts.values())
    if total > len(rows):
        say(f"{len(rows)} of {total:,} rows are shown; --limit shows more, --json all")


def _cell(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if name == "plan":
        return value[:12]
    shown = visible(value)
    return shown if name == "source" or len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > 18:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of 0 or more")
    return int(text)
