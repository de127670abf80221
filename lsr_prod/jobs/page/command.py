"""Write a report page: one HTML file that needs no network, and the same content as JSON.

    lsr-prod page query INDEX "text of a query" [--output DIR]
    lsr-prod page evaluation FILE.json [--output DIR]
    lsr-prod page side-by-side CANARY.json [--output DIR]
    lsr-prod page sweep FILE.json [--output DIR]
    lsr-prod page run PLACE [--output DIR]
    lsr-prod page index INDEX [--output DIR]

``lsr-prod page KIND --help`` describes a kind. Prints the place of the page, and a line ``RESULT {json}``.
Exit codes: 0 done, 1 failed, 2 bad usage or bad configuration.
"""

from collections.abc import Sequence
from importlib import import_module

from lsr_prod.extras import missing_extra
from lsr_prod.jobs.terminal.shell import CommandParser, exit_code

KINDS = {
    "query": "expansion, hits and contributions of one query",
    "evaluation": "result of lsr-prod evaluate: measures, intervals, comparisons, costs",
    "side-by-side": "result of lsr-prod canary: queries by change, ranks side by side, drift of terms",
    "sweep": "result of lsr-prod sweep: quality against cost, Pareto fronts, the chosen setting",
    "run": "a run of train, encode or index",
    "index": "an index: bytes, postings, terms, blocks, publications",
}
"""Kind of page -> summary. Its module is ``lsr_prod.jobs.page.<kind>`` with underscores."""


def parser() -> CommandParser:
    """Return the parser of the command line before the arguments of a kind."""
    options = CommandParser("page", __doc__)
    kinds = "; ".join(f"{name}: {summary}" for name, summary in KINDS.items())
    options.add_argument("kind", metavar="KIND", choices=tuple(KINDS), help=kinds)
    return options


def main(argv: Sequence[str]) -> int:
    """Write the page; returns the exit code."""
    if not argv or argv[0] not in KINDS:
        return exit_code("page", lambda: _reject(argv))
    try:
        module = import_module(f"lsr_prod.jobs.page.{argv[0].replace('-', '_')}")
    except ModuleNotFoundError as error:
        raise missing_extra(error) from error
    code: int = module.main(argv[1:])
    return code


def _reject(argv: Sequence[str]) -> None:
    """Print the help that is asked for, or raise the error of a kind that does not exist."""
    parser().parse_args(argv[:1])
