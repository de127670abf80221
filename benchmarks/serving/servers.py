"""The servers under load, each in processes of its own."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import yaml

__all__ = ["Server", "backend", "bare", "kill", "served"]

_ROOT = Path(__file__).parents[2]
_UVICORN = ("--workers", "1", "--log-level", "warning", "--no-access-log")
_START_S = 180.0


@dataclass(frozen=True)
class Server:
    """A server that runs.

    Attributes:
        url: where it answers.
        process: its first process.
    """

    url: str
    process: psutil.Process

    def cpu_s(self) -> float:
        """Return the CPU seconds that its processes took so far."""
        times = [one.cpu_times() for one in (self.process, *self.process.children(recursive=True))]
        return sum(each.user + each.system for each in times)


def free_port() -> int:
    """Return a port of loopback that is free."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def bare() -> Iterator[Server]:
    """Run the baseline."""
    port = free_port()
    command = ["uvicorn", "benchmarks.serving.bare:app", "--port", str(port), *_UVICORN]
    with _running(command, f"http://127.0.0.1:{port}/search?q=ready", _ROOT) as server:
        yield server


@contextmanager
def backend(index: Path) -> Iterator[Server]:
    """Run ``examples/backend`` with one worker."""
    port = free_port()
    command = ["uvicorn", "app:app", "--port", str(port), *_UVICORN]
    folder = _ROOT / "examples/backend"
    with _running(command, f"http://127.0.0.1:{port}/health", folder, LSR_INDEX=str(index.resolve())) as server:
        yield server


@contextmanager
def served(index: Path, folder: Path, **settings: float) -> Iterator[Server]:
    """Run ``lsr-prod serve --local``.

    Args:
        index: the index.
        folder: for its deployment file.
        **settings: of the section ``serve``.
    """
    port = free_port()
    config = folder / f"deployment-{port}.yaml"
    config.write_text(yaml.safe_dump({"serve": {"index": str(index.resolve()), "http_port": port, **settings}}))
    command = ["lsr_prod", "serve", "--local", "--config", str(config)]
    with _running(command, f"http://127.0.0.1:{port}/health", _ROOT) as server:
        yield server


def kill(server: Server, deployment: str) -> None:
    """SIGKILL to one replica of a deployment."""
    for process in server.process.children(recursive=True):
        if f"ServeReplica:lsr_prod:{deployment}" in " ".join(process.cmdline()):
            process.send_signal(signal.SIGKILL)
            return
    raise RuntimeError(f"there is no replica of {deployment}")


@contextmanager
def _running(command: Sequence[str], ready: str, folder: Path, **environment: str) -> Iterator[Server]:
    variables = {**os.environ, "PYTHONPATH": str(_ROOT), **environment}
    with subprocess.Popen(
        [sys.executable, "-m", *command],
        cwd=folder,
        env=variables,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            _wait(ready, process)
            address = urllib.parse.urlsplit(ready)
            yield Server(f"{address.scheme}://{address.netloc}", psutil.Process(process.pid))
        finally:
            process.send_signal(signal.SIGINT)


def _wait(url: str, process: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + _START_S
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                answer.read()
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.2)
    raise RuntimeError(f"{' '.join(map(str, process.args[1:]))} did not answer")  # type: ignore[index]
