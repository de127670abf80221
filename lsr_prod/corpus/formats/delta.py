"""Delta tables: the files of one version, without the rows that it has deleted.

delta-rs reads the log; deletion vectors and the names of columns in the files are applied by the readers of the files.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from lsr_prod.config import SourceSettings
from lsr_prod.corpus.folders import source_entries, source_error
from lsr_prod.corpus.formats import arrow, interface, parquet
from lsr_prod.corpus.pinned_file import SourceFile
from lsr_prod.errors import ArtifactError, ConfigError
from lsr_prod.storage import Store, deletion_vector, delta_log, is_remote, location, remote

_VECTORS, _MAPPING = "deletionVectors", "delta.columnMapping"
_READABLE = {_VECTORS, "columnMapping", "timestampNtz", "typeWidening", "v2Checkpoint", "vacuumProtocolCheck"}
# Columns of type variant: rows that need one are quarantined as ``wrong_type``, all others are read.
_READABLE |= {f"variant{name}{state}" for name in ("Type", "Shredding") for state in ("", "-preview")}
_REWRITE = "read a copy: in Spark, spark.read.table('NAME').write.parquet('FOLDER')"
_UNSUPPORTED = re.compile(r"Feature '(?P<name>\w+)' is not supported|loading a (?P<managed>catalog-managed) table")


def _has_log(path: str, options: dict[str, str]) -> bool:
    if is_remote(path):
        return bool(Store(path, options).names("_delta_log"))
    return (Path(path) / "_delta_log").is_dir()


def _files(path: str, settings: SourceSettings, options: dict[str, str]) -> Iterator[SourceFile]:
    """Yield the files of ``source.version``, sorted by path; partition values are constants of a file."""
    store = Store(path, options)
    table = _open(store, settings.version)
    partitions, columns, vectors = table.metadata().partition_columns, _columns(table, settings), _vectors(store, table)
    entries = {entry.name: entry for entry in source_entries(store) if not entry.name.startswith("_delta_log/")}
    for uri, size, modified, *values in _listed(table, partitions):
        if urlsplit(uri).scheme or uri.startswith("/"):
            raise source_error(f"{store.uri} is a shallow clone: {uri} belongs to another table", _REWRITE)
        name, deleted = unquote(uri), vectors.pop(uri, None)  # the log holds URIs: special characters are escaped
        tag, constants = f"delta:{uri}:{modified}", tuple(zip(partitions, values, strict=True))
        file = SourceFile(store.location, name, "parquet", size, tag, constants, columns, deleted)
        yield parquet.at_location(file, entries)
        vector_file = None if deleted is None else deletion_vector.file_of(deleted)
        if vector_file is not None and vector_file not in entries:
            problem = f"{store.uri}/{vector_file}, which names deleted rows of {name}, was deleted"
            raise source_error(problem, "restore the table")
    if vectors:
        raise source_error(f"{store.uri} deletes rows of {min(vectors)}, which is not one of its files", _REWRITE)


def _listed(table: Any, partitions: list[str]) -> Iterator[tuple[Any, ...]]:
    """Yield (path, size, time of the last write, text of each partition value) of every file, sorted by path."""
    actions = pa.table(table.get_add_actions(flatten=True)).sort_by("path")
    facts = [actions[name].to_pylist() for name in ("path", "size_bytes", "modification_time")]
    texts = [_texts(actions[f"partition.{name}"].combine_chunks()) for name in partitions]
    yield from zip(*facts, *texts, strict=True)


def _texts(values: pa.Array) -> list[str | None]:
    """Return partition values as the readers of files return the values of a column."""
    if pa.types.is_binary(values.type):
        return [None if value is None else value.decode(errors="backslashreplace") for value in values.to_pylist()]
    return values.to_pylist() if arrow.is_text(values.type) else arrow.scalar_texts(values)


def _columns(table: Any, settings: SourceSettings) -> parquet.Columns:
    """Return names or numbers in the files of the columns to read; nothing if the files have the names of the table."""
    mode = table.metadata().configuration.get(f"{_MAPPING}.mode", "none")
    if mode == "none":
        return ()
    columns = {settings.column(name) for name in settings.fields}.difference(table.metadata().partition_columns)
    mapped = _mapped(table.schema().fields)
    inside = {name: path if number is None or mode == "name" else number for name, path, number in mapped}
    return tuple((column, inside.get(column, "")) for column in sorted(columns))  # a table without it: no file has it


def _mapped(fields: Iterable[Any], above: tuple[str, str] = ("", "")) -> Iterator[tuple[str, str, int | None]]:
    """Yield (name or dotted path in the table, the same in the files, number) of all columns and their fields."""
    for field in fields:
        name, inside = above[0] + field.name, above[1] + str(field.metadata.get(f"{_MAPPING}.physicalName", field.name))
        yield name, inside, field.metadata.get(f"{_MAPPING}.id")
        yield from _mapped(getattr(field.type, "fields", ()), (f"{name}.", f"{inside}."))


def _vectors(store: Store, table: Any) -> dict[str, deletion_vector.DeletionVector]:
    """Return the deletion vectors of a version by path of the file."""
    if _VECTORS not in (table.protocol().reader_features or ()):
        return {}
    try:
        vectors = delta_log.deletion_vectors(store, table.version())
        for vector in vectors.values():
            deletion_vector.file_of(vector)
    except ArtifactError as error:
        raise source_error(*str(error).rsplit("; ", 1)) from error
    return vectors


def _open(store: Store, version: int | None) -> Any:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    if (problem := location.table_problem(store.uri)) is not None:
        what, _, remedy = problem.rpartition("; ")
        raise source_error(what, remedy)
    try:
        table = DeltaTable(store.location, version=version, storage_options=store.delta_options)
        features = table.protocol().reader_features
    except (DeltaError, OSError) as error:
        if unsupported := _UNSUPPORTED.search(str(error)):
            raise _unreadable(store, [unsupported["name"] or unsupported["managed"]]) from error
        raise source_error(
            f"{store.uri} does not open as a Delta table ({remote.short_message(error)})",
            "give a table, and a version that it has",
        ) from error
    if unread := set(features or ()) - _READABLE:
        raise _unreadable(store, sorted(unread))
    return table


def _unreadable(store: Store, features: list[str]) -> ConfigError:
    managed = " (a catalog holds its newest commits)" if any("catalog" in feature for feature in features) else ""
    return source_error(f"{store.uri} uses Delta features {', '.join(features)}{managed}, which are not read", _REWRITE)


def _schema(path: str, settings: SourceSettings, options: dict[str, str]) -> pa.Schema:
    """Return the columns of ``source.version``, partition columns included."""
    return pa.schema(_open(Store(path, options), settings.version).schema().to_arrow())


DELTA = interface.FolderFormat("delta", _has_log, _files, _schema, versioned=True, documents=False)
