"""Remove the pin of a publication: retention may delete it.

    lsr-prod index unpin INDEX --publication 41
    lsr-prod index unpin --config deployment.yaml --publication 41

INDEX is the folder or URI of ``index.output``.

Prints a table, or one JSON object with ``--json``. Exit codes: 0 done, 1 failed, 2 bad usage or bad configuration.
"""

from collections.abc import Sequence

from lsr_prod.errors import ConfigError
from lsr_prod.jobs.publications.pin import print_pin
from lsr_prod.jobs.publications.place import index_parser, open_place
from lsr_prod.jobs.terminal.shell import CommandParser, exit_code


def parser() -> CommandParser:
    """Return the parser of the command line."""
    options = index_parser("index unpin", __doc__)
    options.add_argument("--publication", type=int, metavar="NUMBER", help="publication to unpin")
    return options


def main(argv: Sequence[str]) -> int:
    """Unpin the publication; returns the exit code."""
    return exit_code("index unpin", lambda: _unpin(argv), output_required=False)


def _unpin(argv: Sequence[str]) -> None:
    given = parser().parse_args(argv)
    index = open_place("index unpin", given)
    if given.publication is None:
        raise ConfigError("--publication", "no publication is named", "give the number of a pinned publication")
    from lsr_prod.storage.publications import unpin_publication

    pin = unpin_publication(index, given.publication)
    print_pin("lsr-prod index unpin", {"index": index.uri, **pin.to_json()}, as_json=given.json)
