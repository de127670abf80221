"""Open a table whatever its sink, and make one exactly once."""

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

import pyarrow as pa

from lsr_prod.errors import ArtifactError, MissingExtraError
from lsr_prod.storage import Store
from lsr_prod.tables.manifest import create_manifest, open_manifest
from lsr_prod.tables.table import Table

__all__ = ["SINKS", "Sink", "create_table", "open_table"]

Sink = Literal["delta", "parquet"]
SINKS: tuple[str, ...] = get_args(Sink)


def open_table(store: Store, version: int | None = None) -> Table | None:
    """A snapshot of the table in a folder, or None where no table is.

    Args:
        store: the folder.
        version: pinned version; None: the newest.

    Raises:
        StorageError: the store failed.
        ArtifactError: the log is damaged, has no such version, or there are two logs.
        MissingExtraError: it may be a Delta table and deltalake is not installed.
    """
    plain = open_manifest(store, version)
    try:
        from lsr_prod.tables.delta import open_delta
    except ImportError as error:
        if plain is not None:
            return plain
        raise MissingExtraError("deltalake", "jobs") from error
    delta = open_delta(store, version if plain is None else None)
    if plain is not None and delta is not None:
        raise ArtifactError(f"{store.uri} has a Delta log and a manifest; keep the folder of one of them")
    return plain or delta


def create_table(
    store: Store, sink: Sink, schema: pa.Schema, partition_by: Sequence[str], properties: Mapping[str, str]
) -> Table:
    """Open the table of a folder, and make it if there is none; of two that make it at once one opens the other's.

    Args:
        store: the folder.
        sink: what to make; a table that is there keeps its own.
        schema: columns, partition columns included.
        partition_by: partition columns.
        properties: fixed from now on.

    Raises:
        StorageError: the store failed.
        MissingExtraError: ``sink`` is delta and deltalake is not installed.
    """
    found = open_table(store)
    if found is not None:
        return found
    if sink == "parquet":
        create_manifest(store, schema, partition_by, properties)
    else:
        from lsr_prod.tables.delta import create_delta

        create_delta(store, schema, partition_by, properties)
    made = open_table(store)
    assert made is not None
    return made
