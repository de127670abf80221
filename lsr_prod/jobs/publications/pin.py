"""Pin a publication: retention keeps it and its version until it is unpinned.

    lsr-prod index pin INDEX --publication 41 --reason "audit of November"
    lsr-prod index pin --config deployment.yaml --publication 41 --reason TEXT

INDEX is the folder or URI of ``index.output``. Without ``--publication`` the current one is pinned. A publication that
is pinned keeps its first pin.

Prints a table, or one JSON object with ``--json``. Exit codes: 0 done, 1 failed, 2 bad usage or bad configuration.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from lsr_prod.errors import ConfigError
from lsr_prod.jobs.publications.place import index_parser, open_place
from lsr_prod.jobs.terminal.output import print_json
from lsr_prod.jobs.terminal.shell import CommandParser, exit_code


def parser() -> CommandParser:
    """Return the parser of the command line."""
    options = index_parser("index pin", __doc__)
    options.add_argument("--publication", type=int, metavar="NUMBER", help="publication to pin; default: the current")
    options.add_argument("--reason", metavar="TEXT", help="why, kept in the pin")
    options.add_argument(
        "--by", metavar="NAME", help="who, kept in the pin; default: LSR_PROD_BY, or the user and the host"
    )
    return options


def main(argv: Sequence[str]) -> int:
    """Pin the publication; returns the exit code."""
    return exit_code("index pin", lambda: _pin(argv), output_required=False)


def print_pin(title: str, facts: Mapping[str, Any], *, as_json: bool) -> None:
    """Print a pin."""
    if as_json:
        print_json(facts)
        return
    from lsr_prod.jobs.terminal.tables import print_table

    print_table(title, facts)


def _pin(argv: Sequence[str]) -> None:
    given = parser().parse_args(argv)
    index = open_place("index pin", given)
    if not (given.reason or "").strip():
        raise ConfigError("--reason", "no reason is given", "say in a few words why the publication is kept")
    from lsr_prod.indexing.publish import publisher_name
    from lsr_prod.storage.publications import current_publication, pin_publication

    number = current_publication(index).number if given.publication is None else given.publication
    pin, created = pin_publication(index, number, by=given.by or publisher_name(), reason=given.reason)
    print_pin("lsr-prod index pin", {"index": index.uri, **pin.to_json(), "created": created}, as_json=given.json)
