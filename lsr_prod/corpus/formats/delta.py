"""Delta tables: the files of one version."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from lsr_prod.config import SourceSettings
from lsr_prod.corpus.folders import source_entries
from lsr_prod.corpus.formats.interface import FolderFormat
from lsr_prod.corpus.pinned_file import SourceFile
from lsr_prod.errors import ConfigError
from lsr_prod.storage import Store, is_remote
from lsr_prod.storage.location import table_problem
from lsr_prod.storage.remote import short_message

_READABLE = {"timestampNtz", "vacuumProtocolCheck"}


def _has_log(path: str, options: dict[str, str]) -> bool:
    if is_remote(path):
        return bool(Store(path, options).names("_delta_log"))
    return (Path(path) / "_delta_log").is_dir()


def _files(path: str, settings: SourceSettings, options: dict[str, str]) -> Iterator[SourceFile]:
    """Yield the files of ``source.version``, sorted by path; partition values are constants of a file."""
    store = Store(path, options)
    table = _open(store, settings.version)
    partitions = table.metadata().partition_columns
    found = {entry.name: entry for entry in source_entries(store) if not entry.name.startswith("_delta_log/")}
    actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    for action in sorted(actions, key=lambda action: str(action["path"])):
        constants = tuple((name, _as_text(action[f"partition.{name}"])) for name in partitions)
        tag = f"delta:{action['path']}:{action['modification_time']}"
        name = unquote(str(action["path"]))  # the log holds URIs: a partition's special characters are escaped
        size, entry = int(action["size_bytes"]), found.get(name)
        if entry is None or entry.size != size:
            state = "was deleted" if entry is None else f"has {entry.size} bytes instead of {size}"
            raise ConfigError(
                "source.paths",
                f"{store.location}/{name}, a file of version {table.version()}, {state}",
                "set source.version to a version with all of its files, or restore the table",
            )
        file = SourceFile(store.location, name, "parquet", size, tag, constants)
        if entry.etag is not None:
            yield replace(file, etag=entry.etag)
        else:
            facts = Path(file.location).stat()
            yield replace(file, mtime_ns=facts.st_mtime_ns, inode=facts.st_ino)


def _open(store: Store, version: int | None) -> Any:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    if (problem := table_problem(store.uri)) is not None:
        what, _, remedy = problem.rpartition("; ")
        raise ConfigError("source.paths", what, remedy)
    try:
        table = DeltaTable(store.location, version=version, storage_options=store.delta_options)
        protocol, configuration = table.protocol(), table.metadata().configuration
    except (DeltaError, OSError) as error:
        raise ConfigError(
            "source.paths",
            f"{store.uri} does not open as a Delta table ({short_message(error)})",
            "give a table, and a version that it has",
        ) from error
    unread = set(protocol.reader_features or ()) - _READABLE
    if configuration.get("delta.columnMapping.mode", "none") != "none":
        unread.add("columnMapping")  # the columns of its files have other names
    if unread:
        raise ConfigError(
            "source.paths",
            f"{store.uri} uses Delta features {sorted(unread)}",
            "rewrite it without them, e.g. as Parquet",
        )
    return table


def _as_text(value: object) -> str | None:
    return None if value is None else str(value)


def _schema(path: str, settings: SourceSettings, options: dict[str, str]) -> pa.Schema:
    """Return the columns of ``source.version``, partition columns included."""
    return pa.schema(_open(Store(path, options), settings.version).schema().to_arrow())


DELTA = FolderFormat("delta", _has_log, _files, _schema, versioned=True, documents=False)
