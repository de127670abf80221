"""Processes of the committers: each makes one attempt, or one maintenance, under the faults of its script.

``python -m tests.faults.committer SOCKET`` imports everything once and forks a process per connection, so that a start
costs milliseconds. Faults are injected from outside the production code: functions of Python and of libraries are
wrapped, processes are killed and stopped, files truncated, disks filled. ``lsr_prod`` has no code for it.

Lines on the connection: ``pid N``, ``phase NAME NTH``, ``gate NAME``, ``encoded N``, ``fault NAME``, and at the end
``done N`` or ``error TYPE TEXT``. The last ``phase`` line of a killed process tells in which phase it was.
"""

import json
import os
import signal
import socket
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lsr_prod
from lsr_prod.encoding.tables import open_table
from lsr_prod.operations.maintenance.compact import compact
from lsr_prod.operations.maintenance.job import compact_quarantine
from lsr_prod.operations.maintenance.vacuum import paths_in_markers, shorten_chain, vacuum
from lsr_prod.storage.formats.sparse import SparseBatch
from tests.faults.corpus import POISON, fake_vectors, is_flaky
from tests.faults.inject import inject
from tests.faults.protocol import Job, run_attempt
from tests.faults.script import Script

__all__: list[str] = []

_TOP_K = 64
_TARGET_BYTES = 1_000_000  # of a compacted part


class _Stage:
    """Reports the running phase of the protocol to the parent, and carries out kill and gate of the script."""

    def __init__(self, connection: socket.socket, script: Script) -> None:
        self._connection, self._script = connection, script
        self._inside = ["between"]
        self._times: Counter[str] = Counter()
        self._left = script.kill[2] if script.kill else 0

    def tell(self, *words: object) -> None:
        self._connection.sendall(" ".join(str(word).replace("\n", " ") for word in words).encode() + b"\n")

    def moment(self, name: str) -> None:
        self._times[name] += 1
        self._wait_at(name)

    def _wait_at(self, name: str) -> None:
        if (name, self._times[name]) in self._script.gates:
            self.tell("gate", name)
            self._connection.recv(1)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self._times[name] += 1
        self._enter(name)
        self._wait_at(name)
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
        def announced(*args: Any, **kwargs: Any) -> Any:
            with self.phase(name):
                return function(*args, **kwargs)

        return announced

    def gate_before(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def gated(*args: Any, **kwargs: Any) -> Any:
            self.moment(name)
            return function(*args, **kwargs)

        return gated


def _perform(connection: socket.socket, job: Job, script: Script) -> None:
    stage = _Stage(connection, script)
    stage.tell("pid", os.getpid())
    if not connection.recv(1):  # the parent has opened a handle
        return
    inject(stage, script)
    try:
        done = _work(stage, job, script)
    except Exception as error:  # noqa: BLE001 (the parent evaluates any error)
        stage.tell("error", type(error).__name__, error)
    else:
        stage.tell("done", done)


def _work(stage: _Stage, job: Job, script: Script) -> int:
    """Return the number of committed waves, merged parts or deleted files."""
    table, quarantine = job.stores
    if script.work == "compact":
        merged = compact(table, _TARGET_BYTES).parts_merged
        return merged + (
            compact_quarantine(quarantine, table, _TARGET_BYTES).parts_merged if open_table(quarantine) else 0
        )
    if script.work == "vacuum":
        marked = paths_in_markers(table)
        bad = vacuum(quarantine, script.retention, marked=marked)
        found = vacuum(table, script.retention, keep_versions=script.keep, marked=marked)
        if snapshot := open_table(table):
            shorten_chain(snapshot)
        return len(bad.entries) + len(found.entries)
    return run_attempt(job, stage.phase, _Encoder(stage, script.flaky), abandon=script.abandon)


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


def _serve(path: str) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    sys.stdout.write(f"ready {Path(lsr_prod.__file__).parents[1]}\n")
    sys.stdout.flush()
    while True:
        connection, _ = listener.accept()
        _reap()
        if os.fork() == 0:
            listener.close()
            with connection:
                message = json.loads(connection.makefile("r").readline())
                _perform(connection, Job(**message["job"]), Script.from_json(message["script"]))
            os._exit(0)
        connection.close()


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    except ChildProcessError:
        return


if __name__ == "__main__":
    _serve(sys.argv[1])
