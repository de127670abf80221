"""Write the page of an evaluation: systems, comparisons with the baseline, queries, and cost of the index.

    lsr-prod inspect evaluation FILE.json [--measure nDCG@10] [--output DIR]

FILE is the ``evaluation.json`` that ``lsr-prod evaluate`` writes into ``evaluate.output``; a path or a URI.
Exit codes: 0 done, 1 failed, 2 bad usage.
"""

from collections.abc import Sequence

from lsr_prod.jobs.page.output import page_parser, read_result, save
from lsr_prod.jobs.terminal.shell import CommandParser, exit_code, location
from lsr_prod.operations.pages.evaluation import evaluation_page


def parser() -> CommandParser:
    """Return the parser of the command line."""
    options = page_parser("evaluation", __doc__)
    options.add_argument("file", metavar="FILE", type=location, help="result of an evaluation, a path or a URI")
    options.add_argument(
        "--measure", metavar="NAME", help="measure of the order and of the charts (default: the first)"
    )
    return options


def main(argv: Sequence[str]) -> int:
    """Write the page; returns the exit code."""
    return exit_code("inspect evaluation", lambda: _write(argv), output_required=False)


def _write(argv: Sequence[str]) -> None:
    given = parser().parse_args(argv)
    result = read_result(given, ("index", "systems", "comparisons", "query_ids", "query_texts", "efficiency"))
    save(given, evaluation_page(result, measure=given.measure))
