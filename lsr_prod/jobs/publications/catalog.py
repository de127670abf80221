"""Print every version that the store of an index keeps: lineage, size, and why it is kept.

    lsr-prod index catalog INDEX [--json]
    lsr-prod index catalog --config deployment.yaml [--json]

INDEX is the folder or URI of ``index.output``. ``own bytes`` are those of shards that no other version has. A version
that is ``unpublished`` was refused by a gate, is being built, or waits for retention; ``read`` says that a process has
it open, which is known of folders only.

Prints tables, or one JSON object with ``--json``. Exit codes: 0 done, 1 failed, 2 bad usage or bad configuration.
"""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lsr_prod.jobs.publications.place import index_parser, open_place
from lsr_prod.jobs.terminal.output import print_json
from lsr_prod.jobs.terminal.shell import CommandParser, exit_code

if TYPE_CHECKING:
    from lsr_prod.operations.publications import CatalogEntry

_COLUMNS = ("version", "state", "publications", "used at", "documents", "shards", "bytes", "own bytes")


def parser() -> CommandParser:
    """Return the parser of the command line."""
    return index_parser("index catalog", __doc__)


def main(argv: Sequence[str]) -> int:
    """Print the catalog; returns the exit code."""
    return exit_code("index catalog", lambda: _print(argv))


def _print(argv: Sequence[str]) -> None:
    given = parser().parse_args(argv)
    index = open_place("index catalog", given)
    from lsr_prod.jobs.terminal.tables import print_columns, print_table
    from lsr_prod.operations.publications import read_catalog

    catalog = read_catalog(index)
    if given.json:
        print_json(catalog.to_json())
        return
    facts = {"index": catalog.index, "objects": catalog.objects, "bytes": catalog.bytes}
    print_table("index", {**facts, "versions": len(catalog.versions)})
    print_columns("versions, the last used first", (*_COLUMNS, "bundle", "table", "at"), [*map(_row, catalog.versions)])


def _row(entry: "CatalogEntry") -> list[Any]:
    numbers = ", ".join(map(str, entry.publications))
    used = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(entry.modified))
    figures = [entry.documents, entry.shards, entry.bytes, entry.own_bytes]
    table = entry.table_uri or entry.problem
    return [entry.version, entry.state, numbers, used, *figures, entry.bundle_digest, table, entry.table_version]
