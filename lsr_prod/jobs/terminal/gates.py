"""Gates on the command line: the options that overrule them, and the table of their results."""

from collections.abc import Sequence
from typing import Any

from lsr_prod.jobs.terminal.shell import CommandParser
from lsr_prod.jobs.terminal.tables import print_columns
from lsr_prod.operations.gates import GateReport


def force_options(name: str) -> CommandParser:
    """Return the options ``--force`` and ``--reason`` of a job."""
    options = CommandParser(name)
    options.add_argument(
        "--force", action="append", default=[], metavar="GATE", help="publish although this gate refuses; repeatable"
    )
    options.add_argument("--reason", default="", metavar="TEXT", help="why; recorded in the publication")
    return options


def gate_rows(reports: Sequence[GateReport]) -> list[dict[str, Any]]:
    """Return the results of the newest report, for the ``RESULT`` line."""
    return list(reports[-1].to_json()["results"]) if reports else []


def print_gates(reports: Sequence[GateReport]) -> None:
    """Print the results of the newest report, one row per gate that has a limit."""
    results = [result for result in reports[-1].results if result.verdict != "off"] if reports else []
    if results:
        rows = [[result.gate, result.verdict, result.sentence] for result in results]
        print_columns("gates", ["gate", "verdict", "finding"], rows)
