"""Sparse tables of one corpus by several bundles: the table of a new bundle lies next to the one before it.

The first bundle encodes into ``encode.table``, the bundle with the digest 4f2a… into ``<encode.table>-4f2a…``. A table
is never encoded by two bundles. A table that no version of the index names is retired: it gets a mark, then its files
are deleted. The name of a retired table is not used again. The next run resumes a deletion that was killed.

::

    <encode.table>/_lsr_prod/generations/<name>.json   tables next to this one
    <table>/_lsr_prod/retired.json                     mark of a retired table; created before its files are deleted

After ``lsr-prod reindex`` with another bundle, ``encode.table`` stays the name of the first table, and all jobs work on
the table next to it: ``follow_tables`` changes the settings of a deployment accordingly.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count

from lsr_prod.config import Deployment, EncodeSettings, IndexSettings, MaintainSettings
from lsr_prod.encoding.tables import Table, open_table, sparse_table
from lsr_prod.errors import ArtifactError, ConfigError
from lsr_prod.logs import get_log
from lsr_prod.storage import Store, folders, in_threads, index_versions, location, publications
from lsr_prod.storage.formats.digests import parsing

log = get_log(__name__)
_RETIRED = f"{sparse_table.PROTOCOL_FOLDER}/retired.json"
_GENERATIONS = f"{sparse_table.PROTOCOL_FOLDER}/generations"


@dataclass(frozen=True, slots=True)
class RetiredTables:
    """Summary of a retirement."""

    tables: int  # tables whose files were deleted
    objects: int  # files that were deleted
    size: int  # their bytes


def table_for_bundle(first: Store, digest: str) -> Store:
    """Return the table that a bundle encodes into, which may not exist yet; nothing is written."""
    for number in count():
        table = _generation(first, digest, number)
        if is_retired(table):
            continue
        snapshot = open_table(table)
        if snapshot is not None and snapshot.sparse_properties.bundle_digest != digest:
            continue
        return table
    raise AssertionError


def table_of_bundle(first: Store, digest: str) -> Store:
    """Return the table that a bundle has encoded into; ``first`` if there is none."""
    for store, table in find_tables(first):
        if table.sparse_properties.bundle_digest == digest:
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
    if table != first and first.put_new(f"{_GENERATIONS}/{table.uri.rpartition('/')[2]}.json", b"{}\n"):
        log.info("table of another bundle begun", extra={"fields": {"table": table.uri}})


def retire_tables(index: Store, first: Store, used: Store, *, age_s: float) -> RetiredTables:
    """Delete the tables of earlier bundles that no version of the index names, once ``used`` is published."""
    current = publications.find_current_publication(index)
    if current is None:
        return RetiredTables(0, 0, 0)
    uris = _table_uris(index)
    published = uris.get(current.version)
    if published is None or not location.same_location(published, used.location):
        return RetiredTables(0, 0, 0)
    tables = objects = size = 0
    for table in _generations(first):
        if any(location.same_location(table.location, uri) for uri in {used.location, *uris.values()}):
            continue
        files = [entry for entry in table.entries() if not _is_kept(entry.name)]
        if not files or max(entry.modified for entry in files) >= table.now(sparse_table.PROTOCOL_FOLDER) - age_s:
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
    return Store(f"{first.uri.rstrip('/')}-{digest[:12]}" + (f"-{number}" if number > 1 else ""), first.options)


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
        with parsing(f"{index.uri}/{name} cannot be read", "publish another version"):
            return name[len("versions/") : -len(".json")], str(json.loads(index.get(name) or b"")["table_uri"])

    return dict(in_threads(read, [name for name in index.names("versions") if name.endswith(".json")]))


def follow_tables(deployment: Deployment, options: Mapping[str, str] | None = None) -> Deployment:
    """Return the deployment with the table and quarantine of its bundle; unchanged if no other bundle was used."""
    section, name = (deployment.encode, "encode") if deployment.encode else (deployment.index, "index")
    assert section is not None
    first = Store(folders.absolute(section.table), deployment.storage.options if options is None else dict(options))
    if not find_tables(first):
        return deployment
    table = table_of_bundle(first, _bundle_digest(section, name, first.options))
    if is_retired(table):
        raise ConfigError(
            f"{name}.table",
            f"{section.table} was retired when another bundle replaced its own",
            f"run lsr-prod reindex, which makes a table for the bundle, or give a new {name}.table",
        )
    return with_table(deployment, first, table)


def with_table(deployment: Deployment, first: Store, table: Store) -> Deployment:
    """Return the deployment with another table than the first one, and the quarantine of that table."""
    sections: dict[str, EncodeSettings | IndexSettings] = {}
    if table == first:
        return deployment
    if deployment.encode is not None:
        changed = {"table": table.uri, "quarantine": _beside(deployment.encode.quarantine, first, table)}
        sections["encode"] = deployment.encode.model_copy(update=changed)
    if deployment.index is not None:
        sections["index"] = deployment.index.model_copy(update={"table": table.uri})
    return deployment.model_copy(update=sections)


def follow_maintained_table(deployment: Deployment) -> Deployment:
    """Return the deployment with the table to maintain: that of the first index of ``maintain.indexes``, else the table
    with the newest commit; unchanged if no other bundle was used.
    """
    settings = deployment.maintain
    assert settings is not None
    first = Store(folders.absolute(settings.table), deployment.storage.options)
    found = find_tables(first)
    if not found:
        return deployment
    published = _published_table(settings, first)
    named = [store for store, _ in found if published and location.same_location(store.location, published)]
    table = named[0] if named else max(found, key=lambda one: one[1].log()[-1].committed_at)[0]
    changed = {"table": table.uri, "quarantine": _beside(settings.quarantine, first, table)}
    return deployment.model_copy(update={"maintain": settings.model_copy(update=changed)})


def _published_table(settings: MaintainSettings, first: Store) -> str:
    """Return the table of the current version of the first index; "" if there is none."""
    for place in settings.indexes:
        index = Store(place, first.options)
        current = publications.find_current_publication(index)
        return "" if current is None else index_versions.read_version(index, current.version).table_uri
    return ""


def _beside(quarantine: str | None, first: Store, table: Store) -> str | None:
    """Return the quarantine of a table, with the suffix of its name."""
    return quarantine and quarantine.rstrip("/") + table.uri.removeprefix(first.uri.rstrip("/"))


def _bundle_digest(section: EncodeSettings | IndexSettings, name: str, options: Mapping[str, str]) -> str:
    try:
        return folders.bundle_manifest(section.bundle, options).digest
    except ArtifactError as error:
        raise ConfigError(f"{name}.bundle", str(error), "give the folder or URI that lsr-prod export wrote") from error
