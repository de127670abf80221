"""Delta tables that are opened once per version: delta-rs needs 3 ms for it, and a life opens a table a hundred times.

Only the newest version is shared, and never with a commit: delta-rs advances the handle that commits, so a commit opens
its version again. A snapshot that an attempt holds stays what it was.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from deltalake import DeltaTable

from lsr_prod.encoding.tables import Table, table
from lsr_prod.storage.delta_log import is_commit

__all__ = ["shared_handles"]


class _Handles:
    """Stand-in for the class ``DeltaTable`` in ``lsr_prod.encoding.tables.table``."""

    create = staticmethod(DeltaTable.create)

    def __init__(self) -> None:
        self._newest: dict[str, tuple[str, DeltaTable]] = {}

    def __call__(self, location: str, version: int | None = None, storage_options: Any = None) -> DeltaTable:
        log = Path(location, "_delta_log")
        if version is not None or not log.exists():
            return DeltaTable(location, version=version, storage_options=storage_options)
        newest = max((path.name for path in log.iterdir() if is_commit(path.name)), default="")
        known, handle = self._newest.get(location, ("", None))
        if handle is None or known != newest:
            handle = DeltaTable(location, storage_options=storage_options)
            self._newest[location] = newest, handle
        return handle


@contextmanager
def shared_handles() -> Iterator[None]:
    """Share handles of local Delta tables in this block."""
    commit = Table.commit

    def commit_alone(snapshot: Table, *args: Any, **kwargs: Any) -> None:
        own = DeltaTable(snapshot.store.location, version=snapshot.version)
        commit(Table(snapshot.store, own), *args, **kwargs)

    with patch.object(table, "DeltaTable", _Handles()), patch.object(Table, "commit", commit_alone):
        yield
