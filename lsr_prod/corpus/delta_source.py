"""A Delta table as a corpus: the files of one version."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from lsr_prod.config import SourceSettings
from lsr_prod.corpus.source_file import SourceFile
from lsr_prod.errors import ConfigError
from lsr_prod.storage import Store

__all__ = ["delta_files"]

_READABLE = {"timestampNtz", "vacuumProtocolCheck"}


def delta_files(path: str, settings: SourceSettings, options: dict[str, str]) -> Iterator[SourceFile]:
    """The files of the version that the settings name, sorted by path; partition values are constants of a file.

    Raises:
        ConfigError: there is no such table or version, it needs a feature that we do not read, or a file of it is
            gone or has another size.
    """
    import pyarrow as pa

    store = Store(path, options)
    table = _open(store, settings.version)
    partitions = table.metadata().partition_columns
    found = {entry.name: entry.size for entry in store.entries() if not entry.name.startswith("_delta_log/")}
    actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    for action in sorted(actions, key=lambda action: str(action["path"])):
        constants = tuple((name, _as_text(action[f"partition.{name}"])) for name in partitions)
        tag = f"delta:{action['path']}:{action['modification_time']}"
        name = unquote(str(action["path"]))  # the log holds URIs: a partition's special characters are escaped
        size = int(action["size_bytes"])
        if found.get(name) != size:
            state = f"has {found[name]} bytes instead of {size}" if name in found else "is gone"
            raise ConfigError(
                "source.paths",
                f"{store.location}/{name}, a file of version {table.version()}, {state}",
                "name a version whose files are there, or mend the table",
            )
        yield SourceFile(store.location, name, "parquet", size, tag, constants)


def _open(store: Store, version: int | None) -> Any:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        table = DeltaTable(store.location, version=version, storage_options=store.delta_options)
        protocol, configuration = table.protocol(), table.metadata().configuration
    except (DeltaError, OSError) as error:
        raise ConfigError(
            "source.paths",
            f"{store.uri} does not open as a Delta table ({error})",
            "give a table, and a version it has",
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
