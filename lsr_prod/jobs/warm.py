"""Compile the search kernels before the first query, for example before a new searcher gets traffic.

    lsr-prod warm INDEX

Compiled kernels are stored next to the package, or in ``NUMBA_CACHE_DIR``; later processes load them. Prints the time
that a cold start takes. Exit codes: 0 done, 1 failed, 2 bad usage.
"""

import sys
from collections.abc import Sequence

from lsr_prod.jobs.terminal.shell import CommandParser, add_store_option, exit_code, location, store_options
from lsr_prod.search.warm import warm

__all__ = ["main", "parser"]


def parser() -> CommandParser:
    """Return the parser of the command line."""
    options = CommandParser("warm", __doc__)
    options.add_argument("index", metavar="INDEX", type=location, help="folder or URI of an index")
    add_store_option(options)
    return options


def main(argv: Sequence[str]) -> int:
    """Compile and measure; returns the exit code."""
    return exit_code("warm", lambda: _warm(argv))


def _warm(argv: Sequence[str]) -> None:
    given = parser().parse_args(argv)
    found = warm(given.index, store_options(given))
    sys.stdout.write(
        f"import numba {found.import_s:.2f} s · open {found.open_ms:.1f} ms · "
        f"first queries {found.first_s:.2f} s · same queries again {found.next_ms:.2f} ms\n"
    )
