"""Open a table of either sink, or create one exactly once."""

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

import pyarrow as pa

from lsr_prod.errors import ArtifactError, MissingExtraError
from lsr_prod.storage import Store
from lsr_prod.tables.parquet import create_parquet, open_parquet
from lsr_prod.tables.table import Table

Sink = Literal["delta", "parquet"]
SINKS: tuple[str, ...] = get_args(Sink)


def open_table(store: Store, version: int | None = None) -> Table | None:
    """Open a snapshot of the table in a folder; None if there is no table.

    Args:
        store: the folder.
        version: version to open; None opens the newest.

    Raises:
        StorageError: the store failed.
        ArtifactError: the log is damaged or has no such version, or there are two logs.
        MissingExtraError: the folder may hold a Delta table, and deltalake is not installed.
    """
    plain = open_parquet(store, version)
    try:
        from lsr_prod.tables.delta import open_delta
    except ImportError as error:
        if plain is not None:
            return plain
        raise MissingExtraError("deltalake", "jobs") from error
    delta = open_delta(store, version if plain is None else None)
    if plain is not None and delta is not None:
        raise ArtifactError(f"{store.uri} has a Delta log and a manifest; delete the folder of one of them")
    return plain or delta


def create_table(
    store: Store, sink: Sink, schema: pa.Schema, partition_by: Sequence[str], properties: Mapping[str, str]
) -> Table:
    """Open the table of a folder; create it if there is none. Of two concurrent creators, one opens the other's table.

    Args:
        store: the folder.
        sink: sink of a new table; an existing table keeps its own.
        schema: columns, including the partition columns.
        partition_by: partition columns.
        properties: properties of a new table; a commit may change them.

    Raises:
        StorageError: the store failed.
        MissingExtraError: ``sink`` is delta and deltalake is not installed.
    """
    found = open_table(store)
    if found is not None:
        return found
    if sink == "parquet":
        create_parquet(store, schema, partition_by, properties)
    else:
        from lsr_prod.tables.delta import create_delta

        create_delta(store, schema, partition_by, properties)
    created = open_table(store)
    assert created is not None
    return created
