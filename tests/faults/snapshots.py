"""Files and live rows of a snapshot, read by delta-rs without the code under test."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import TableNotFoundError

from lsr_prod.storage import Store

__all__ = ["SnapshotFile", "delta_rows", "snapshot", "visible"]


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """A file of a snapshot.

    Attributes:
        path: inside the table.
        size: bytes.
        rows: number of rows in the file, deleted rows included.
    """

    path: str
    size: int
    rows: int | None


def snapshot(store: Store, version: int | None = None) -> list[SnapshotFile]:
    """Return the files of a snapshot."""
    table = _delta(store, version)
    actions = pa.table(table.get_add_actions(flatten=True)).to_pylist() if table else []
    return [SnapshotFile(action["path"], action["size_bytes"], action["num_records"]) for action in actions]


def visible(store: Store) -> set[str]:
    """Return the paths of the newest snapshot."""
    return {file.path for file in snapshot(store)}


def delta_rows(store: Store, columns: Sequence[str], version: int | None = None) -> list[dict[str, Any]] | None:
    """Return the rows that delta-rs reads from a Delta table with deletions; None: the table is none.

    Raises:
        Exception: of delta-rs, if a file or a deletion vector cannot be read.
    """
    table = _delta(store, version)
    if table is None or "deletionVectors" not in (table.protocol().reader_features or ()):
        return None
    names = ", ".join(columns)
    found = QueryBuilder().register("t", table).execute(f"select {names} from t")
    return pa.table(found.read_all()).to_pylist()


def _delta(store: Store, version: int | None) -> DeltaTable | None:
    if not Path(store.uri).exists() and "://" not in store.uri:
        return None
    try:
        return DeltaTable(store.location, version=version, storage_options=store.delta_options)
    except TableNotFoundError:
        return None
