"""Open an index and run its first query, for example before a new searcher gets traffic.

    lsr-prod index warm INDEX

Reads what every query reads into memory, and prints the time that a cold start takes. Exit codes: 0 done, 1 failed, 2
bad usage.
"""

from collections.abc import Sequence

from lsr_prod.jobs.terminal.output import say
from lsr_prod.jobs.terminal.shell import CommandParser, add_store_option, exit_code, location, store_options
from lsr_prod.search.warm import warm


def parser() -> CommandParser:
    """Return the parser of the command line."""
    options = CommandParser("index warm", __doc__)
    options.add_argument("index", metavar="INDEX", type=location, help="folder or URI of an index")
    add_store_option(options)
    return options


def main(argv: Sequence[str]) -> int:
    """Measure; returns the exit code."""
    return exit_code("index warm", lambda: _warm(argv), output_required=False)


def _warm(argv: Sequence[str]) -> None:
    given = parser().parse_args(argv)
    found = warm(given.index, store_options(given))
    say(
        f"open {found.open_ms:.1f} ms · first queries {found.first_ms:.1f} ms · "
        f"same queries again {found.next_ms:.2f} ms"
    )
