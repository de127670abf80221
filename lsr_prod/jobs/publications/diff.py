"""Print what changed between two publications of an index.

    lsr-prod index diff INDEX [--from 40] [--to 41] [--documents] [--json]
    lsr-prod index diff --config deployment.yaml [--from 40] [--to 41]

INDEX is the folder or URI of ``index.output``. ``--to`` is the current publication by default, ``--from`` the one
before it. With ``--documents`` the ids of the documents are compared too: shards that only one of the versions has are
read, about 100 bytes of memory per document; the table shows the first ids, ``--json`` all.

Prints tables, or one JSON object with ``--json``. Exit codes: 0 done, 1 failed, 2 bad usage or bad configuration.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lsr_prod.errors import PublicationError
from lsr_prod.jobs.publications.place import index_parser, open_place
from lsr_prod.jobs.terminal.output import print_json
from lsr_prod.jobs.terminal.shell import CommandParser, exit_code

if TYPE_CHECKING:
    from lsr_prod.storage import Store

_SHOWN = 10  # ids of a kind in the table


def parser() -> CommandParser:
    """Return the parser of the command line."""
    options = index_parser("index diff", __doc__)
    options.add_argument("--from", dest="old", type=int, metavar="NUMBER", help="older publication")
    options.add_argument("--to", dest="new", type=int, metavar="NUMBER", help="newer publication")
    options.add_argument("--documents", action="store_true", help="compare the ids of documents")
    return options


def main(argv: Sequence[str]) -> int:
    """Print the difference; returns the exit code."""
    return exit_code("index diff", lambda: _print(argv))


def _print(argv: Sequence[str]) -> None:
    given = parser().parse_args(argv)
    index = open_place("index diff", given)
    from lsr_prod.jobs.terminal.tables import print_columns, print_table
    from lsr_prod.operations.publications import changed_ids, compare_versions
    from lsr_prod.storage.index_versions import read_version
    from lsr_prod.storage.publications import read_publication

    numbers = _numbers(index, given.old, given.new)
    old, new = (read_version(index, read_publication(index, number).version) for number in numbers)
    difference = compare_versions(old, new)
    documents = changed_ids(index, old, new).to_json() if given.documents else {}
    if given.json:
        facts = {"from": numbers[0], "to": numbers[1], **difference.to_json(), **documents}
        print_json(facts)
        return
    facts = difference.to_json()
    changed = {**facts.pop("lineage"), **facts.pop("settings")}
    print_table(f"from publication {numbers[0]} to {numbers[1]}", facts)
    if changed:
        rows = [[name, *map(str, pair)] for name, pair in changed.items()]
        print_columns("lineage and settings", ("field", "from", "to"), rows)
    if documents:
        rows = [[kind, len(ids), " ".join(ids[:_SHOWN])] for kind, ids in documents.items()]
        print_columns("documents", ("change", "number", "first ids"), rows)


def _numbers(index: "Store", old: int | None, new: int | None) -> tuple[int, int]:
    """Return the two publications to compare."""
    from lsr_prod.storage.publications import current_publication, publication_numbers

    new = current_publication(index).number if new is None else new
    if old is None:
        before = [number for number in publication_numbers(index) if number < new]
        if not before:
            raise PublicationError(f"{index.uri} has no publication before {new}; give two numbers by --from and --to")
        old = before[-1]
    return old, new
