"""Write the page of one query: expansion, hits, and what each term adds to each hit.

    lsr-prod inspect query INDEX "text of the query" [-k 10] [--hybrid] [--words 0.5] [--output DIR]

A slider in the page shows which hits drop out if more query terms must be shared. If the index was built with
``index.bm25``, the page also has the ranks and scores of BM25 and of the hybrid search; with ``--hybrid`` the hits are
those of the hybrid search.

Prints the place of the page, and a line ``RESULT {json}``. Exit codes: 0 done, 1 failed, 2 bad usage.
"""

from collections.abc import Sequence

from lsr_prod.errors import ConfigError
from lsr_prod.jobs.page.output import page_parser, save
from lsr_prod.jobs.terminal.shell import CommandParser, exit_code, location, store_options
from lsr_prod.operations.pages.query import query_data, query_page
from lsr_prod.search.query.request import Hybrid
from lsr_prod.search.searcher import Searcher


def parser() -> CommandParser:
    """Return the parser of the command line."""
    options = page_parser("query", __doc__)
    options.add_argument("index", metavar="INDEX", type=location, help="folder or URI of an index")
    options.add_argument("text", metavar="TEXT", help="the query")
    options.add_argument("-k", type=int, default=10, metavar="N", help="number of hits, 1 to 100 (default: 10)")
    options.add_argument("--qk", type=int, metavar="N", help="query terms, heaviest first (default: all)")
    options.add_argument("--hybrid", action="store_true", help="rank by terms and words")
    options.add_argument("--words", type=float, default=1.0, metavar="X", help="weight of the words (default: 1)")
    return options


def main(argv: Sequence[str]) -> int:
    """Write the page; returns the exit code."""
    return exit_code("inspect query", lambda: _write(argv), output_required=False)


def _write(argv: Sequence[str]) -> None:
    given = parser().parse_args(argv)
    if not 1 <= given.k <= 100:
        raise ConfigError("-k", f"{given.k} is not possible", "give an integer from 1 to 100")
    hybrid = Hybrid(words=given.words) if given.hybrid else None
    with Searcher.open(given.index, storage_options=store_options(given)) as searcher:
        data = query_data(searcher, given.text, k=given.k, qk=given.qk, hybrid=hybrid)
    save(given, query_page(data), {"hits": len(data["hits"]), "terms": len(data["terms"])})
