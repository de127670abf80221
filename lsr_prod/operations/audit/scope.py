"""Scope of an audit: the source as it is listed now, a version of the table, and a version of the index."""

from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

from lsr_prod.config import SourceSettings
from lsr_prod.encoding.tables import Table, live_rows, open_table
from lsr_prod.errors import ConfigError
from lsr_prod.operations.audit.compare import IdRange
from lsr_prod.storage import Store, index_versions, location, publications
from lsr_prod.storage.deletion_vector import file_of
from lsr_prod.storage.formats.index_format import IndexVersion

Rule = Literal["first", "last"]


@dataclass(frozen=True, slots=True)
class IndexScope:
    """The version of an index that is compared."""

    store: Store  # the index
    version: IndexVersion  # the version
    base: Table | None  # snapshot of the table that it was built from; None: that version of the table was deleted


@dataclass(frozen=True, slots=True)
class Scope:
    """Source, table and index version of an audit."""

    source: SourceSettings  # the section ``source``
    rule: Rule  # which row of an id is the document: the first or the last one of the source
    files: pa.Table = field(repr=False)  # the pinned source, as ``filelist.list_files`` returns it
    table: Table  # snapshot of the table
    quarantine: Table | None  # snapshot of the quarantine; None: there is none
    index: IndexScope | None = None  # version of the index; None: it is not compared
    ids: IdRange = field(default_factory=IdRange)  # which ids are compared
    stored: bool = True  # compare the stored fields too
    clipping: bool = True  # count the weights with the largest impact

    @property
    def size(self) -> int:
        """Bytes of the source and of the table."""
        return live_rows.total(self.files, "size") + live_rows.total(self.table.file_table(), "size")

    @property
    def stored_fields(self) -> tuple[str, ...]:
        """Stored fields that are compared."""
        return tuple(self.source.stored_fields) if self.stored else ()


def open_scope(source: SourceSettings, rule: Rule, files: pa.Table, table: Table, quarantine: Store) -> Scope:
    """Return the scope of a table.

    Args:
        source: the section ``source``.
        rule: which row of an id is the document: the first or the last one of the source.
        files: the pinned source.
        table: snapshot of the table.
        quarantine: folder of the quarantine.

    Raises:
        ConfigError: the table has other stored fields than the section ``source``.
        FormatVersionError: the table was written in another format.
    """
    properties = table.sparse_properties
    if properties.stored_fields != tuple(source.stored_fields):
        problem = f"{table.store.uri} was made with {list(properties.stored_fields)}, not {source.stored_fields}"
        raise ConfigError("source.stored_fields", problem, "give the configuration that the table is encoded with")
    # The audit counts damage, whatever a job does.
    reported = source.model_copy(update={"on_damage": "skip", "types": {**properties.stored_types, **source.types}})
    return Scope(reported, rule, files, table, open_table(quarantine))


def open_index_scope(index: Store, table: Table) -> IndexScope | None:
    """Return the scope of the published version of an index; None: nothing is published.

    Args:
        index: folder or store of the index.
        table: newest snapshot of the table that is compared.

    Raises:
        ArtifactError: the version is missing or damaged.
    """
    publication = publications.find_current_publication(index)
    if publication is None:
        return None
    version = index_versions.read_version(index, publication.version)
    return IndexScope(index, version, _base(version, table))


def _base(version: IndexVersion, table: Table) -> Table | None:
    """Return the table at the version that an index was built from; None if files of it were deleted."""
    same = location.same_location(table.store.location, version.table_uri)
    if same and version.table_version == table.version:
        return table
    store = table.store if same else Store(version.table_uri, table.store.options)
    newest = table if same else open_table(store)
    if newest is None or version.table_version not in {entry.version for entry in newest.log()}:
        return None
    base = open_table(store, version.table_version)
    assert base is not None
    there = {*store.names()}
    named = {path for file in base.files() for path in (file.path, file.deleted and file_of(file.deleted)) if path}
    return base if named <= there else None
