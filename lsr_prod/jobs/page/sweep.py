"""Write the page of a sweep: quality against cost, Pareto fronts, and the chosen setting.

    lsr-prod inspect sweep FILE.json [--output DIR]

FILE is the result that ``lsr-prod sweep`` writes; a path or a URI. Exit codes: 0 done, 1 failed, 2 bad usage.
"""

from collections.abc import Sequence

from lsr_prod.jobs.page.output import page_parser, read_result, save
from lsr_prod.jobs.terminal.shell import CommandParser, exit_code, location
from lsr_prod.operations.pages.sweep import sweep_page


def parser() -> CommandParser:
    """Return the parser of the command line."""
    options = page_parser("sweep", __doc__)
    options.add_argument("file", metavar="FILE", type=location, help="result of a sweep, a path or a URI")
    return options


def main(argv: Sequence[str]) -> int:
    """Write the page; returns the exit code."""
    return exit_code("inspect sweep", lambda: _write(argv), output_required=False)


def _write(argv: Sequence[str]) -> None:
    given = parser().parse_args(argv)
    save(given, sweep_page(read_result(given, ("measure", "costs", "points", "fronts", "chosen"))))
