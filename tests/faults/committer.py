"""Committer processes: each makes one attempt, reports its progress, and injects the faults of its script.

``python -m tests.faults.committer SOCKET`` imports everything once and forks a process per connection, so that a start
costs milliseconds. Faults are injected from outside the production code: functions of Python and of libraries are
wrapped, processes are killed and stopped, files truncated, disks filled. ``lsr_prod`` has no code for it.

Lines on the connection: ``pid N``, ``phase NAME NTH``, ``gate``, ``encoded N``, ``fault NAME``, and at the end
``done N`` or ``error TYPE TEXT``. The last ``phase`` line of a killed process tells in which phase it was.
"""

import datetime as dt
import errno
import json
import os
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from lsr_prod.encoding.commit import committer
from lsr_prod.errors import StorageError
from lsr_prod.formats.sparse import SparseBatch
from lsr_prod.storage import Store
from lsr_prod.tables import part as parts
from tests.faults.corpus import POISON, fake_vectors, is_flaky
from tests.faults.protocol import MANIFEST, Job, run_attempt

__all__ = ["Script"]

_TOP_K = 64


@dataclass(frozen=True, slots=True)
class Script:
    """Faults of one attempt.

    Attributes:
        kill: (phase, nth, calls): SIGKILL after this many Python calls in the nth entry of the phase.
        gate: (phase, nth): wait there for a message of the parent.
        eio: (call, nth): the nth ``write``, ``fsync``, ``link`` or ``read`` of a file fails (EIO), a write half-way.
        landed: the nth commit of a table succeeds but reports an error.
        refused: the nth commit of a table fails with an error.
        skew: seconds by which its clock is ahead.
        flaky: some documents, chosen by this word, fail in this attempt only.
    """

    kill: tuple[str, int, int] | None = None
    gate: tuple[str, int] | None = None
    eio: tuple[str, int] | None = None
    landed: int | None = None
    refused: int | None = None
    skew: int = 0
    flaky: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return JSON values for a message."""
        return asdict(self)


class _Stage:
    """Reports the running phase of the protocol to the parent, and carries out kill and gate of the script."""

    def __init__(self, connection: socket.socket, script: Script) -> None:
        self._connection, self._script = connection, script
        self._inside = ["between"]
        self._times: Counter[str] = Counter()
        self._left = script.kill[2] if script.kill else 0

    def tell(self, *words: object) -> None:
        self._connection.sendall(" ".join(str(word).replace("\n", " ") for word in words).encode() + b"\n")

    def wait(self) -> None:
        self.tell("gate")
        self._connection.recv(1)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self._times[name] += 1
        self._enter(name)
        if self._script.gate == (name, self._times[name]):
            self.wait()
        try:
            yield
        finally:
            self._inside.pop()
            self._enter(self._inside.pop())

    def _enter(self, name: str) -> None:
        sys.setprofile(None)
        self._inside.append(name)
        self.tell("phase", name, self._times[name])
        if self._script.kill and name == self._script.kill[0] and self._times[name] >= self._script.kill[1]:
            sys.setprofile(self._count)

    def _count(self, *_: object) -> None:
        self._left -= 1
        if self._left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def announce(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``function`` wrapped in a phase."""

        def announced(*args: Any, **kwargs: Any) -> Any:
            with self.phase(name):
                return function(*args, **kwargs)

        return announced


def _perform(connection: socket.socket, job: Job, script: Script) -> None:
    stage = _Stage(connection, script)
    stage.tell("pid", os.getpid())
    if not connection.recv(1):  # the parent has opened a handle
        return
    _wrap(stage, script)
    try:
        waves = run_attempt(job, stage.phase, _Encoder(stage, script.flaky))
    except Exception as error:  # noqa: BLE001 (the parent evaluates any error)
        stage.tell("error", type(error).__name__, error)
    else:
        stage.tell("done", waves)


class _Encoder:
    """Stand-in for a model: a vector that depends on the text only; some texts raise an error."""

    def __init__(self, stage: _Stage, flaky: str | None) -> None:
        self._stage, self._flaky = stage, flaky

    def encode(self, texts: Sequence[str]) -> SparseBatch:
        for text in texts:
            if POISON in text or (self._flaky and text != "word" and is_flaky(text, self._flaky)):
                raise ValueError("the model fails on this text")
        self._stage.tell("encoded", len(texts))
        return fake_vectors(texts).top(_TOP_K)


def _wrap(stage: _Stage, script: Script) -> None:
    whole_put = Store.put_new
    put_part = stage.announce("write", whole_put)

    def put_new(store: Store, name: str, data: bytes) -> bool:
        if MANIFEST.search(name):
            return commits(whole_put)(store, name, data)
        return (put_part if "/part-" in f"/{name}" or "/done/" in name else whole_put)(store, name, data)

    commits = _Commits(stage, script)
    Store.put_new = put_new
    DeltaTable.create_write_transaction = commits(DeltaTable.create_write_transaction)
    check = stage.announce("read-back", parts.check_part)
    parts.check_part = committer.check_part = check
    if script.eio:
        _break(stage, *script.eio)
    if script.skew:
        _shift_clock(script.skew)
        stage.tell("fault", "skew")


class _Commits:
    """Counts commits of tables, without their creation."""

    def __init__(self, stage: _Stage, script: Script) -> None:
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


def _break(stage: _Stage, call: str, nth: int) -> None:
    """Make only the nth call of one kind fail with EIO."""
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
    elif call == "read":
        whole_reader = Store.open_reader

        def open_reader(store: Store, name: str, **options: Any) -> Any:
            if "part-" in name and due():
                raise error
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


def _serve(path: str) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        connection, _ = listener.accept()
        _reap()
        if os.fork() == 0:
            listener.close()
            with connection:
                message = json.loads(connection.makefile("r").readline())
                _perform(connection, Job(**message["job"]), Script(**_tuples(message["script"])))
            os._exit(0)
        connection.close()


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    except ChildProcessError:
        return


def _tuples(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}


if __name__ == "__main__":
    _serve(sys.argv[1])
