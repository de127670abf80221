"""The commands on the publications of an index: ``index publications``, ``catalog``, ``diff``, ``pin`` and ``unpin``."""

import argparse
import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from lsr_prod.errors import ConfigError, PublicationError
from lsr_prod.jobs.terminal.output import print_json
from lsr_prod.jobs.terminal.shell import (
    Command,
    CommandParser,
    add_place,
    add_store_option,
    deployment_of,
    store_options,
)

if TYPE_CHECKING:
    from lsr_prod.storage import Store
    from lsr_prod_contrib.publications import CatalogEntry, HistoryEntry

_HISTORY = ("number", "published at", "version", "state", "documents", "bytes", "what changed", "who", "why")
_CATALOG = (
    "version", "state", "publications", "used at", "documents", "shards", "bytes", "own bytes", "bundle", "table", "at",
)  # fmt: skip
_SHOWN = 10  # ids of a kind in the table of a difference


def _add_options(parser: CommandParser) -> None:
    """Add the arguments that name an index, and ``--json``."""
    add_place(parser, "INDEX", "folder or URI of an index")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_store_option(parser)


def _open_index(given: argparse.Namespace, name: str) -> "Store":
    deployment = deployment_of(given, name, "INDEX", "index")
    from lsr_prod.storage import Store
    from lsr_prod.storage.folders import absolute

    if deployment is None:
        return Store(absolute(given.index), store_options(given))
    assert deployment.index is not None
    return Store(absolute(deployment.index.output), {**deployment.storage.options, **store_options(given)})


def _add_history_options(parser: CommandParser) -> None:
    _add_options(parser)
    parser.add_argument("--last", type=int, metavar="N", help="print only the newest N; default: all")


@partial(Command, "index publications", add_options=_add_history_options)
def publications(given: argparse.Namespace) -> None:
    """Print the publications of an index: when, by whom, why, and what changed.

        lsr-prod index publications INDEX [--last 20] [--json]
        lsr-prod index publications --config deployment.yaml [--json]

    INDEX is the folder or URI of ``index.output``. The newest publication is the one that readers use; a pinned publication
    is not deleted by retention. Only manifests are read.

    Prints a table, or one JSON object with ``--json``. Exit codes: 0 done, 1 failed, 2 bad usage or bad configuration.
    """
    index = _open_index(given, "index publications")
    if given.last is not None and given.last < 1:
        raise ConfigError("--last", f"{given.last} is no number of publications", "give 1 or more")
    from lsr_prod.jobs.terminal.tables import print_columns
    from lsr_prod.storage.publications import current_publication
    from lsr_prod_contrib.publications import read_history

    current_publication(index)  # an index without one is an error
    entries = read_history(index, last=given.last)
    if given.json:
        print_json({"index": index.uri, "publications": [one.to_json() for one in entries]})
        return
    print_columns(f"publications of {index.uri}, newest first", _HISTORY, [_history_row(one) for one in entries])


def _history_row(entry: "HistoryEntry") -> list[Any]:
    from lsr_prod_contrib.publications import version_bytes

    publication, version = entry.publication, entry.version
    states = [name for name, there in (("current", entry.current), ("pinned", entry.pin is not None)) if there]
    forced = [f"gate {one.gate} overruled: {one.reason}" for one in publication.forced]
    why = "; ".join(text for text in (publication.note, *forced) if text)
    what = [publication.number, publication.published_at, publication.version, ", ".join(states)]
    sizes = [version.documents, version_bytes(version)] if version else [None, None]
    changed = entry.difference.sentence() if entry.difference else entry.problem
    return [*what, *sizes, changed, publication.by, why]


@partial(Command, "index catalog", add_options=_add_options)
def catalog(given: argparse.Namespace) -> None:
    """Print every version that the store of an index keeps: lineage, size, and why it is kept.

        lsr-prod index catalog INDEX [--json]
        lsr-prod index catalog --config deployment.yaml [--json]

    INDEX is the folder or URI of ``index.output``. ``own bytes`` are those of shards that no other version has. A version
    that is ``unpublished`` was refused by a gate, is being built, or waits for retention; ``read`` says that a process has
    it open, which is known of folders only.

    Prints tables, or one JSON object with ``--json``. Exit codes: 0 done, 1 failed, 2 bad usage or bad configuration.
    """
    index = _open_index(given, "index catalog")
    from lsr_prod.jobs.terminal.tables import print_columns, print_table
    from lsr_prod_contrib.publications import read_catalog

    found = read_catalog(index)
    if given.json:
        print_json(found.to_json())
        return
    facts = {"index": found.index, "objects": found.objects, "bytes": found.bytes}
    print_table("index", {**facts, "versions": len(found.versions)})
    print_columns("versions, the last used first", _CATALOG, [_catalog_row(one) for one in found.versions])


def _catalog_row(entry: "CatalogEntry") -> list[Any]:
    numbers = ", ".join(map(str, entry.publications))
    used = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(entry.modified))
    figures = [entry.documents, entry.shards, entry.bytes, entry.own_bytes]
    table = entry.table_uri or entry.problem
    return [entry.version, entry.state, numbers, used, *figures, entry.bundle_digest, table, entry.table_version]


def _add_diff_options(parser: CommandParser) -> None:
    _add_options(parser)
    parser.add_argument("--from", dest="old", type=int, metavar="NUMBER", help="older publication")
    parser.add_argument("--to", dest="new", type=int, metavar="NUMBER", help="newer publication")
    parser.add_argument("--documents", action="store_true", help="compare the ids of documents")


@partial(Command, "index diff", add_options=_add_diff_options)
def diff(given: argparse.Namespace) -> None:
    """Print what changed between two publications of an index.

        lsr-prod index diff INDEX [--from 40] [--to 41] [--documents] [--json]
        lsr-prod index diff --config deployment.yaml [--from 40] [--to 41]

    INDEX is the folder or URI of ``index.output``. ``--to`` is the current publication by default, ``--from`` the one
    before it. With ``--documents`` the ids of the documents are compared too: shards that only one of the versions has are
    read, about 100 bytes of memory per document; the table shows the first ids, ``--json`` all.

    Prints tables, or one JSON object with ``--json``. Exit codes: 0 done, 1 failed, 2 bad usage or bad configuration.
    """
    index = _open_index(given, "index diff")
    from lsr_prod.jobs.terminal.tables import print_columns, print_table
    from lsr_prod.storage.index_versions import read_version
    from lsr_prod.storage.publications import read_publication
    from lsr_prod_contrib.publications import changed_ids, compare_versions

    numbers = _numbers(index, given.old, given.new)
    old, new = (read_version(index, read_publication(index, number).version) for number in numbers)
    difference = compare_versions(old, new)
    documents = changed_ids(index, old, new).to_json() if given.documents else {}
    if given.json:
        print_json({"from": numbers[0], "to": numbers[1], **difference.to_json(), **documents})
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


def _add_pin_options(parser: CommandParser) -> None:
    _add_options(parser)
    parser.add_argument("--publication", type=int, metavar="NUMBER", help="publication to pin; default: the current")
    parser.add_argument("--reason", metavar="TEXT", help="why, kept in the pin")
    parser.add_argument(
        "--by", metavar="NAME", help="who, kept in the pin; default: LSR_PROD_BY, or the user and the host"
    )


@partial(Command, "index pin", add_options=_add_pin_options, output_required=False)
def pin(given: argparse.Namespace) -> None:
    """Pin a publication: retention keeps it and its version until it is unpinned.

        lsr-prod index pin INDEX --publication 41 --reason "audit of November"
        lsr-prod index pin --config deployment.yaml --publication 41 --reason TEXT

    INDEX is the folder or URI of ``index.output``. Without ``--publication`` the current one is pinned. A publication that
    is pinned keeps its first pin.

    Prints a table, or one JSON object with ``--json``. Exit codes: 0 done, 1 failed, 2 bad usage or bad configuration.
    """
    index = _open_index(given, "index pin")
    if not (given.reason or "").strip():
        raise ConfigError("--reason", "no reason is given", "say in a few words why the publication is kept")
    from lsr_prod.indexing.publish import publisher_name
    from lsr_prod.storage.publications import current_publication, pin_publication

    number = current_publication(index).number if given.publication is None else given.publication
    made, created = pin_publication(index, number, by=given.by or publisher_name(), reason=given.reason)
    _print_pin("lsr-prod index pin", {"index": index.uri, **made.to_json(), "created": created}, given)


def _add_unpin_options(parser: CommandParser) -> None:
    _add_options(parser)
    parser.add_argument("--publication", type=int, metavar="NUMBER", help="publication to unpin")


@partial(Command, "index unpin", add_options=_add_unpin_options, output_required=False)
def unpin(given: argparse.Namespace) -> None:
    """Remove the pin of a publication: retention may delete it.

        lsr-prod index unpin INDEX --publication 41
        lsr-prod index unpin --config deployment.yaml --publication 41

    INDEX is the folder or URI of ``index.output``.

    Prints a table, or one JSON object with ``--json``. Exit codes: 0 done, 1 failed, 2 bad usage or bad configuration.
    """
    index = _open_index(given, "index unpin")
    if given.publication is None:
        raise ConfigError("--publication", "no publication is named", "give the number of a pinned publication")
    from lsr_prod.storage.publications import unpin_publication

    removed = unpin_publication(index, given.publication)
    _print_pin("lsr-prod index unpin", {"index": index.uri, **removed.to_json()}, given)


def _print_pin(title: str, facts: Mapping[str, Any], given: argparse.Namespace) -> None:
    if given.json:
        print_json(facts)
        return
    from lsr_prod.jobs.terminal.tables import print_table

    print_table(title, facts)
