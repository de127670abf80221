"""Sparse tables of one corpus by several bundles: the table of a new bundle lies next to the one before it.

The first bundle encodes into ``encode.table``, the bundle with the digest 4f2a… into ``<encode.table>-4f2a…``. A table
is never encoded by two bundles. A table that no version of the index names is retired: it gets a mark, then its files
are deleted. The name of a retired table is not used again. The next run resumes a deletion that was killed.

::

    <encode.table>/_lsr_prod/generations/<name>.json   tables next to this one
    <table>/_lsr_prod/retired.json                     mark of a retired table; created before its files are deleted
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from lsr_prod.encoding.table import PROTOCOL_FOLDER
from lsr_prod.errors import ArtifactError
from lsr_prod.formats.table import TableProperties
from lsr_prod.logs import get_log
from lsr_prod.storage import Store
from lsr_prod.storage.publications import find_current_publication
from lsr_prod.storage.threads import in_threads
from lsr_prod.tables import Table, open_table

log = get_log(__name__)

_RETIRED = f"{PROTOCOL_FOLDER}/retired.json"
_GENERATIONS = f"{PROTOCOL_FOLDER}/generations"


@dataclass(frozen=True, slots=True)
class RetiredTables:
    """Summary of a retirement.

    Attributes:
        tables: tables whose files were deleted.
        objects: files that were deleted.
        size: their bytes.
    """

    tables: int
    objects: int
    size: int


def table_for_bundle(first: Store, digest: str) -> Store:
    """Return the table that a bundle encodes into, which may not exist yet; nothing is written."""
    for number in count():
        table = _generation(first, digest, number)
        if is_retired(table):
            continue
        snapshot = open_table(table)
        if snapshot is not None and TableProperties.from_delta(dict(snapshot.properties)).bundle_digest != digest:
            continue
        return table
    raise AssertionError


def table_of_bundle(first: Store, digest: str) -> Store:
    """Return the table that a bundle has encoded into; ``first`` if there is none."""
    for store, table in find_tables(first):
        if TableProperties.from_delta(dict(table.properties)).bundle_digest == digest:
            return store
    return first


def find_tables(first: Store) -> list[tuple[Store, Table]]:
    """Return the tables of all bundles that exist and are not retired; none if there was only one bundle."""
    stores = list(_generations(first))
    if len(stores) == 1:
        return []
    active = [store for store in stores if not is_retired(store)]
    return [(store, table) for store in active if (table := open_table(store)) is not None]


def is_retired(table: Store) -> bool:
    """Return whether the files of a table were deleted, or are being deleted, because no version names it."""
    return table.entry(_RETIRED) is not None


def register_table(first: Store, table: Store) -> None:
    """Make a table known to ``retire_tables`` before it is created."""
    name = table.uri.rpartition("/")[2]
    if table != first and first.put_new(f"{_GENERATIONS}/{name}.json", b"{}\n"):
        log.info("table of another bundle begun", extra={"fields": {"table": table.uri}})


def retire_tables(index: Store, first: Store, used: Store, *, age_s: float) -> RetiredTables:
    """Delete the tables of earlier bundles that no version of the index names, once ``used`` is published."""
    current = find_current_publication(index)
    if current is None:
        return RetiredTables(0, 0, 0)
    uris = _table_uris(index)
    if uris.get(current.version) != used.location:
        return RetiredTables(0, 0, 0)
    tables = objects = size = 0
    for table in _generations(first):
        if table.location == used.location or table.location in uris.values():
            continue
        files = [entry for entry in table.entries() if not _is_kept(entry.name)]
        if not files or max(entry.modified for entry in files) >= table.now(PROTOCOL_FOLDER) - age_s:
            continue
        table.put_new(_RETIRED, b"{}\n")
        table.delete_all([entry.name for entry in files])
        tables, objects = tables + 1, objects + len(files)
        size += sum(entry.size for entry in files)
        log.info("table retired", extra={"fields": {"table": table.uri, "objects": len(files)}})
    return RetiredTables(tables, objects, size)


def _generation(first: Store, digest: str, number: int) -> Store:
    """Return table ``number`` of a bundle: ``encode.table`` itself, then tables with the digest in their name."""
    if number == 0:
        return first
    suffix = digest[:12] if number == 1 else f"{digest[:12]}-{number}"
    return Store(f"{first.uri.rstrip('/')}-{suffix}", first.options)


def _generations(first: Store) -> Iterator[Store]:
    yield first
    parent = first.uri.rstrip("/").rpartition("/")[0]
    for name in first.names(_GENERATIONS):
        yield Store(f"{parent}/{name.removeprefix(f'{_GENERATIONS}/').removesuffix('.json')}", first.options)


def _is_kept(name: str) -> bool:
    return name == _RETIRED or name.startswith(f"{_GENERATIONS}/")


def _table_uris(index: Store) -> dict[str, str]:
    """Return the table of every version of the index, by the sha256 of the version."""

    def read(name: str) -> tuple[str, str]:
        try:
            return name[len("versions/") : -len(".json")], str(json.loads(index.get(name) or b"")["table_uri"])
        except (ValueError, KeyError, TypeError) as error:
            raise ArtifactError(f"{index.uri}/{name} cannot be read ({error!r}); publish another version") from error

    names = [name for name in index.names("versions") if name.endswith(".json")]
    return dict(in_threads(read, names))
