"""Write the page of two versions or models: queries by change, ranks side by side, terms that drifted.

    lsr-prod inspect side-by-side CANARY.json [--output DIR]
    lsr-prod inspect side-by-side --a INDEX@41 --b INDEX --queries FILE [--qrels FILE] [--k 10] [--output DIR]

CANARY.json is the ``canary.json`` of ``lsr-prod index canary``, a path or a URI; with ``--a``, ``--b`` and
``--queries`` the comparison runs first. The page shows the 200 queries that changed most, with a filter and an order.

Prints the place of the page, and a line ``RESULT {json}``. Exit codes: 0 done, 1 failed, 2 bad usage.
"""

from collections.abc import Sequence

from lsr_prod.errors import ConfigError
from lsr_prod.jobs.page.output import page_parser, read_result, save
from lsr_prod.jobs.publications.canary import add_sides, compare_sides
from lsr_prod.jobs.terminal.shell import CommandParser, exit_code, location
from lsr_prod.operations.pages.side_by_side import KEYS, side_by_side_page


def parser() -> CommandParser:
    """Return the parser of the command line."""
    options = page_parser("side-by-side", __doc__)
    options.add_argument("file", metavar="FILE", nargs="?", type=location, help="canary.json, a path or a URI")
    add_sides(options, required=False)
    return options


def main(argv: Sequence[str]) -> int:
    """Write the page; returns the exit code."""
    return exit_code("inspect side-by-side", lambda: _write(argv), output_required=False)


def _write(argv: Sequence[str]) -> None:
    given = parser().parse_args(argv)
    sides = (given.a, given.b, given.queries)
    if given.file is not None and any(sides):
        raise ConfigError("command line", "FILE and --a, --b or --queries are given", "give one or the other")
    if given.file is None and not all(sides):
        raise ConfigError("command line", "there is nothing to compare", "give FILE, or --a, --b and --queries")
    result = compare_sides(given) if given.file is None else read_result(given, KEYS)
    save(given, side_by_side_page(result), {key: result[key] for key in ("queries", "overlap", "wins", "losses")})
