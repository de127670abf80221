"""The command ``lsr-prod``.

lsr-prod warm INDEX      compile what queries of this index need, and say what a cold start costs
lsr-prod search INDEX    a prompt on an index, as ``lsr-search``
"""

import argparse
import sys
from collections.abc import Sequence

from lsr_prod.errors import LsrError

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="lsr-prod", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name, what in (("warm", "compile the kernels"), ("search", "a prompt")):
        commands.add_parser(name, help=what, add_help=name != "search").add_argument("index", help="folder of an index")
    arguments, rest = parser.parse_known_args(argv)
    if arguments.command == "search":
        from lsr_prod.search.__main__ import main as prompt

        return prompt([arguments.index, *rest])
    if rest:
        parser.error(f"unknown arguments: {' '.join(rest)}")
    return _warm(arguments.index)


def _warm(index: str) -> int:
    from lsr_prod.search.warm import warm

    try:
        found = warm(index)
    except LsrError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 1
    sys.stdout.write(
        f"import numba {found.import_s:.2f} s · open {found.open_ms:.1f} ms · "
        f"first queries {found.first_s:.2f} s · the same again {found.next_ms:.2f} ms\n"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
