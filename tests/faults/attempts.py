"""Parent side of a committer process: start, follow, kill, stop and continue it."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.faults.protocol import Job
from tests.faults.script import Script

__all__ = ["ROOT", "Attempt", "Ended", "Launcher", "launcher"]

ROOT = Path(__file__).parents[2]
_PATIENCE = 120  # seconds; every step takes only a few


@dataclass(frozen=True, slots=True)
class Ended:
    """End of an attempt.

    Attributes:
        how: ``done``, ``error`` or ``killed``.
        phase: its last phase.
        detail: the error message.
        encoded: number of encoded documents.
        faults: faults of its script that occurred.
    """

    how: str
    phase: str
    detail: str
    encoded: int
    faults: tuple[str, ...]


class Attempt:
    """A running process. Use as a context manager; it is killed at the end."""

    def __init__(self, path: str, job: Job, script: Script) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._buffer = b""
        self.phase, self.encoded = "between", 0
        self._end: tuple[str, str] | None = None
        self._faults: list[str] = []
        self._socket.sendall(json.dumps({"job": asdict(job), "script": script.to_json()}).encode() + b"\n")
        self._handle = os.pidfd_open(int(self._next(_PATIENCE)[1]))
        self.proceed()

    def __enter__(self) -> "Attempt":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()
        self._socket.close()
        os.close(self._handle)

    def proceed(self) -> None:
        """Let it continue from its gate."""
        with suppress(BrokenPipeError):  # it has ended
            self._socket.sendall(b"\n")

    def until(self, phase: str, nth: int) -> bool:
        """Wait until it enters a phase for the nth time; return False if it ended before."""
        return self._until(lambda words: words == ["phase", phase, str(nth)])

    def next_phase(self, phase: str, times: int) -> bool:
        """Wait until it has entered a phase ``times`` more times; return False if it ended before."""
        return all(self._until(lambda words: words[:2] == ["phase", phase]) for _ in range(times))

    def until_gate(self) -> bool:
        """Wait until it reaches its next gate; return False if it ended before."""
        return self._until(lambda words: words[0] == "gate")

    def finish(self) -> Ended:
        """Wait for its end."""
        self._until(lambda _: False)
        how, detail = self._end or ("killed", "")
        return Ended(how, self.phase, detail, self.encoded, tuple(self._faults))

    def kill(self) -> Ended:
        """Send SIGKILL and read the rest of its messages."""
        self._send(signal.SIGKILL)
        return self.finish()

    def stop(self) -> None:
        """Send SIGSTOP."""
        self._send(signal.SIGSTOP)

    def resume(self) -> None:
        """Send SIGCONT."""
        self._send(signal.SIGCONT)

    def _send(self, number: int) -> None:
        try:
            signal.pidfd_send_signal(self._handle, number)
        except ProcessLookupError:
            return

    def _until(self, wanted: Any) -> bool:
        deadline = time.monotonic() + _PATIENCE
        while True:
            words = self._next(deadline - time.monotonic())
            if not words:
                return False
            if wanted(words):
                return True

    def _next(self, patience: float) -> list[str]:
        """Return the words of the next line, or none at the end."""
        while b"\n" not in self._buffer:
            if not select.select([self._socket], [], [], max(patience, 0))[0]:
                raise TimeoutError(f"no message from an attempt since phase {self.phase}")
            try:
                data = self._socket.recv(1 << 16)
            except ConnectionResetError:
                data = b""
            if not data:
                return []
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        words = line.decode().split(" ")
        match words[0]:
            case "phase":
                self.phase = words[1]
            case "encoded":
                self.encoded += int(words[1])
            case "fault":
                self._faults.append(words[1])
            case "done" | "error":
                self._end = (words[0], " ".join(words[1:]))
        return words


class Launcher:
    """Starts attempts by forking a process that has imported everything."""

    def __init__(self, path: str) -> None:
        self._path = path

    def start(self, job: Job, script: Script | None = None) -> Attempt:
        """Start an attempt in a new process."""
        return Attempt(self._path, job, script or Script())

    def run(self, job: Job, script: Script | None = None) -> Ended:
        """Run an attempt until it ends."""
        with self.start(job, script) as attempt:
            return attempt.finish()


@contextmanager
def launcher(root: Path = ROOT) -> Iterator[Launcher]:
    """Start the process that attempts are forked from, and end it with the context.

    Args:
        root: folder of the package ``lsr_prod`` that the attempts run.
    """
    with tempfile.TemporaryDirectory(prefix="lsr-faults-") as folder:
        path = f"{folder}/committers"
        command = [sys.executable, "-m", "tests.faults.committer", path]
        environment = {**os.environ, "PYTHONPATH": str(root)}
        with subprocess.Popen(command, cwd=root, env=environment, stdout=subprocess.PIPE) as server:
            assert server.stdout
            found = server.stdout.readline().decode().strip()
            if found != f"ready {root}":
                raise RuntimeError(f"the process of the committers did not start in {root} ({found}); see above")
            try:
                yield Launcher(path)
            finally:
                server.kill()
