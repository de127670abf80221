"""Faults are injected from outside the production code: functions of Python and of libraries are wrapped."""

import datetime as dt
import errno
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from lsr_prod.corpus.pinned_file import Slice
from lsr_prod.corpus.read import Reader
from lsr_prod.encoding.commit import committer
from lsr_prod.encoding.tables import Table
from lsr_prod.encoding.tables import part as parts
from lsr_prod.errors import StorageError
from lsr_prod.operations.maintenance.compact import APP
from lsr_prod.storage import Store, deletion_vector
from tests.faults import protocol
from tests.faults.protocol import COMMIT
from tests.faults.script import Script

__all__ = ["Stage", "inject"]

_INLINE_BYTES = 40  # a vector of five or more rows is stored in a file
_STORE_CALLS = {"put": "put_new", "get": "get", "list": "entries", "entry": "entry"}


class Stage(Protocol):
    """Reports to the parent and waits at gates."""

    def tell(self, *words: object) -> None:
        """Send a line."""

    def moment(self, name: str) -> None:
        """Count a moment, and wait there if it is a gate."""

    def announce(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``function`` wrapped in a phase."""

    def gate_before(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``function`` with a moment before it."""


def inject(stage: Stage, script: Script) -> None:
    """Wrap functions of this process for the rest of its life: phases, moments, and the faults of the script."""
    whole_put = Store.put_new
    put_part = stage.announce("write", whole_put)

    def put_new(store: Store, name: str, data: bytes) -> bool:
        if COMMIT.search(name):
            return commits(whole_put)(store, name, data)
        written = any(word in f"/{name}" for word in ("/part-", "/deletion_vector_", "/done/"))
        return (put_part if written else whole_put)(store, name, data)

    deletion_vector._INLINE_BYTES = _INLINE_BYTES
    commits = _Commits(stage, script)
    Store.put_new = put_new
    DeltaTable.create_write_transaction = commits(DeltaTable.create_write_transaction)
    Table.commit = _gated_commit(stage, Table.commit)
    Reader.read = _gated_read(stage, Reader.read)
    Store.delete = _gated_on_parts(stage, "delete", Store.delete)
    protocol.save_plan = stage.gate_before("save-plan", protocol.save_plan)
    protocol.give_up_base = stage.gate_before("give-up", protocol.give_up_base)
    if script.work == "vacuum":
        Store.entry = _gated_on_parts(stage, "look", Store.entry)
    check = stage.announce("read-back", parts.check_part)
    parts.check_part = committer.check_part = check
    if script.eio:
        _break(stage, *script.eio)
    if script.loses:
        _lose(stage, script.loses)
    if script.skew:
        _shift_clock(script.skew)
        stage.tell("fault", "skew")


def _gated_commit(stage: Stage, commit: Callable[..., None]) -> Callable[..., None]:
    def gated(table: Table, adds: Sequence[Any], removes: Sequence[str], **values: Any) -> None:
        whose = "quarantine" if table.store.uri.endswith("_quarantine") else "table"
        if values["app"] == APP:
            stage.moment("log-compact" if whose == "table" else f"log-compact-{whose}")
        else:
            stage.moment(f"log-{whose}" if adds or removes or values.get("deletions") else f"fence-{whose}")
        commit(table, adds, removes, **values)

    return gated


def _gated_read(stage: Stage, read: Callable[..., Iterator[pa.Table]]) -> Callable[..., Iterator[pa.Table]]:
    def gated(reader: Reader, piece: Slice) -> Iterator[pa.Table]:
        stage.moment("read")
        yield from read(reader, piece)

    return gated


def _gated_on_parts(stage: Stage, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def gated(store: Store, path: str) -> Any:
        if "/part-" in path:
            stage.moment(name)
        return function(store, path)

    return gated


def _lose(stage: Stage, where: str) -> None:
    """Lose the last row of every slice, or one row between the read tasks and the cells."""
    whole_read = Reader.read

    def read(reader: Reader, piece: Slice) -> Iterator[pa.Table]:
        *tables, last = (table for table in whole_read(reader, piece) if table.num_rows)
        stage.tell("fault", "loses")
        yield from (*tables, last.slice(0, last.num_rows - 1))

    def shuffle(rows: pa.Table) -> pa.Table:
        stage.tell("fault", "loses")
        return rows.slice(1)

    if where == "read":
        Reader.read = read
    else:
        protocol.shuffle = shuffle


class _Commits:
    """Counts commits of tables, without their creation."""

    def __init__(self, stage: Stage, script: Script) -> None:
        self._stage, self._script, self._times = stage, script, 0

    def _error(self, function: Callable[..., Any], what: str) -> Exception:
        """Return the error that the store reports, or one of the two kinds of delta-rs."""
        if function.__name__ == "put_new":
            return StorageError(what)
        return DeltaError(what) if self._times % 2 else OSError(errno.EIO, what)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            self._times += 1
            if self._script.refused == self._times:
                self._stage.tell("fault", "refused")
                raise self._error(function, "the log cannot be written")
            result = function(*args, **kwargs)
            if self._script.landed == self._times:
                self._stage.tell("fault", "landed")
                raise self._error(function, "no answer in time")
            return result

        return wrapped


def _break(stage: Stage, call: str, nth: int) -> None:
    """Make only the nth call of one kind fail."""
    times = 0

    def due() -> bool:
        nonlocal times
        times += 1
        if times == nth:
            stage.tell("fault", call)
        return times == nth

    error = OSError(errno.EIO, f"{call}: Input/output error")
    if call in ("fsync", "link"):
        whole = getattr(os, call)

        def broken(*args: Any, **kwargs: Any) -> Any:
            if due():
                raise error
            return whole(*args, **kwargs)

        setattr(os, call, broken)
    elif call in _STORE_CALLS:
        name = _STORE_CALLS[call]
        whole_call = getattr(Store, name)

        def refuse(*args: Any, **kwargs: Any) -> Any:
            if due():
                raise StorageError(f"{call}: 503 Slow Down")
            return whole_call(*args, **kwargs)

        setattr(Store, name, refuse)
    elif call == "read":
        whole_reader = Store.open_reader

        def open_reader(store: Store, name: str, **options: Any) -> Any:
            if "part-" in name and due():
                raise StorageError(f"{name} could not be opened ({error})") from error
            return whole_reader(store, name, **options)

        Store.open_reader = open_reader
    else:
        whole_open = Path.open

        def open_file(path: Path, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            file = whole_open(path, mode, *args, **kwargs)
            return _HalfFile(file, error) if "x" in mode and due() else file

        Path.open = open_file


class _HalfFile:
    """File whose write fails after half of the data."""

    def __init__(self, file: Any, error: OSError) -> None:
        self._file, self._error = file, error

    def __enter__(self) -> "_HalfFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, data: bytes) -> int:
        self._file.write(data[: len(data) // 2])
        self._file.flush()
        raise self._error


def _shift_clock(seconds: int) -> None:
    """Shift what Python code of lsr_prod reads; delta-rs reads the machine's clock."""
    clock, clock_ns, real = time.time, time.time_ns, dt.datetime

    class Shifted(real):
        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> dt.datetime:
            return real.now(tz) + dt.timedelta(seconds=seconds)

    time.time = lambda: clock() + seconds
    time.time_ns = lambda: clock_ns() + seconds * 1_000_000_000
    shifted = SimpleNamespace(**{**vars(dt), "datetime": Shifted})
    for name, module in list(sys.modules.items()):
        if name.startswith("lsr_prod") and getattr(module, "dt", None) is dt:
            module.dt = shifted
