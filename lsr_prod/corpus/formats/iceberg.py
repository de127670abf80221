"""Iceberg tables, named by a metadata file: the data files of one snapshot.

All files are read from the folder of the table, wherever it was when they were written: locations in the metadata are
taken relative to the location of the table, and others are refused.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, BinaryIO

import pyarrow as pa

from lsr_prod import errors, extras
from lsr_prod.config import SourceSettings
from lsr_prod.corpus import folders, pinned_file
from lsr_prod.corpus.formats import interface, parquet
from lsr_prod.storage import Store, remote

_SCHEME = re.compile(r"^\w+:(//)?")
_METADATA = ".metadata.json"
_DAMAGE = (ValueError, KeyError, TypeError, IndexError, EOFError, OSError)  # of pyiceberg, which parses Avro in Python
_COPY = "read a copy: in Spark, spark.read.table('NAME').write.parquet('FOLDER')"
_REWRITE = (
    "rewrite them: in Spark, CALL CATALOG.system.rewrite_data_files(table => 'NAME', "
    "options => map('delete-file-threshold', '1'))"
)


@dataclass(frozen=True, slots=True)
class _Files:
    """The files of a table, as pyiceberg opens them by their location."""

    store: Store
    location: str  # of the table, by its metadata

    def name(self, location: str) -> str:
        top, path = (_SCHEME.sub("", uri) for uri in (self.location, location))  # Hadoop writes s3a: and file:/
        name = path.removeprefix(f"{top.rstrip('/')}/")
        if name == path:
            raise folders.source_error(f"{location} is not in the folder of its table, {self.location}", _COPY)
        return name

    def new_input(self, location: str) -> "_Input":
        return _Input(self.store, self.name(location), location)


@dataclass(frozen=True, slots=True)
class _Input:
    store: Store
    name: str
    location: str

    def open(self, seekable: bool = True) -> BinaryIO:  # noqa: ARG002
        return self.store.open_reader(self.name)


def _files(path: str, settings: SourceSettings, options: dict[str, str]) -> Iterator[pinned_file.SourceFile]:
    """Yield the data files of ``source.version``, sorted by path; values of identity partitions are constants."""
    table, scan = _open(path, settings, options)
    store, schema = table.io.store, scan.projection()
    numbers = {schema.find_column_name(number): number for number in schema.field_ids}
    columns = tuple((name, numbers.get(name, 0)) for name in sorted({*map(settings.column, settings.fields)}))
    entries = {entry.name: entry for entry in folders.source_entries(store)}
    for task in _tasks(path, scan):
        name = table.io.name(task.file.file_path)
        if task.delete_files:
            raise folders.source_error(f"{path} has deleted rows of {name} in another file", _REWRITE)
        if task.file.file_format != "PARQUET":
            raise folders.source_error(f"{store.uri}/{name} is {task.file.file_format}", _COPY)
        facts = (task.file.file_size_in_bytes, f"iceberg:{name}", _constants(table, task), columns)
        yield parquet.at_location(pinned_file.SourceFile(store.location, name, "parquet", *facts), entries)


def _constants(table: Any, task: Any) -> tuple[tuple[str, str | None], ...]:
    schema, spec = table.schema(), table.specs()[task.file.spec_id]
    found = []
    for field, value in zip(spec.fields, task.file.partition, strict=True):
        if str(field.transform) == "identity":
            source = schema.find_field(field.source_id)
            text = None if value is None else field.transform.to_human_string(source.field_type, value)
            found.append((schema.find_column_name(field.source_id), text))
    return tuple(found)


def _tasks(path: str, scan: Any) -> list[Any]:
    try:
        return sorted(scan.plan_files(), key=lambda task: str(task.file.file_path))
    except _DAMAGE as error:
        raise folders.source_error(
            f"the manifests of {path} cannot be read ({remote.short_message(error)})", "restore them"
        ) from error


def _open(path: str, settings: SourceSettings, options: dict[str, str]) -> tuple[Any, Any]:
    try:
        from pyiceberg.catalog.noop import NoopCatalog
        from pyiceberg.exceptions import ValidationError
        from pyiceberg.table import StaticTable
        from pyiceberg.table.metadata import TableMetadataUtil
    except ModuleNotFoundError as error:
        raise extras.missing_extra(error) from error
    folder, _, name = path.rpartition("/metadata/")
    remedy = "name the newest metadata file of an Iceberg table: FOLDER/metadata/NAME.metadata.json"
    store = Store(folder, options) if folder and name.endswith(_METADATA) else None
    content = store.get(f"metadata/{name}") if store is not None else None
    if store is None or content is None:
        raise folders.source_error(f"{path} is no metadata file", remedy)
    try:
        metadata = TableMetadataUtil.parse_raw(content.decode())
    except (*_DAMAGE, ValidationError) as error:
        raise folders.source_error(
            f"{path} is not metadata of Iceberg ({remote.short_message(error)})", remedy
        ) from error
    # Not ``from_metadata``, which takes the class that reads files, and an endpoint, from properties in the metadata.
    files: Any = _Files(store, metadata.location)
    table = StaticTable(("table",), metadata, path, files, NoopCatalog("none"))
    if settings.version is not None and table.snapshot_by_id(settings.version) is None:
        problem = f"{path} has no snapshot {settings.version}"
        raise errors.ConfigError("source.version", problem, "give the id of one that it has")
    return table, table.scan(snapshot_id=settings.version)


def _schema(path: str, settings: SourceSettings, options: dict[str, str]) -> pa.Schema:
    return _open(path, settings, options)[1].projection().as_arrow()


def _recognizes(path: str, _options: dict[str, str]) -> bool:
    return path.endswith(_METADATA) and PurePosixPath(path).parent.name == "metadata"


ICEBERG = interface.FolderFormat("iceberg", _recognizes, _files, _schema, versioned=True, documents=False)
