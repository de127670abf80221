"""One run of a job in a fork of a process that has imported everything, or in a process of its own."""

import importlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.faults.full_disk.disk import FOLDERS
from tests.faults.full_disk.jobs import Job
from tests.faults.full_disk.preload import NoSpace

__all__ = ["Ended", "Fault", "forked", "run_forked", "run_process", "set_places"]

_HANGS_S = 300
_RAY = re.compile(r"\[?\d{4}-\d\d-\d\d |\(.*\bpid=\d+")  # its log, and that of its processes


@dataclass(frozen=True, slots=True)
class Fault:
    """A way in which a disk has no room.

    Attributes:
        kind: ``call``, ``once``, ``pages`` or ``inodes``.
        at: number of the call that fails, or of pages or inodes that are free.
        error: number of the error of a call.
    """

    kind: str
    at: int
    error: int = 0

    def __str__(self) -> str:
        return f"{self.kind} {self.at}{f' {os.strerror(self.error)}' if self.error else ''}"


@dataclass(frozen=True, slots=True)
class Ended:
    """End of a run.

    Attributes:
        code: exit code; below 0 the negative number of a signal.
        errors: what it wrote to stderr, without the log.
        calls: kind of each call that needs space, one letter each.
        failed: those that failed.
    """

    code: int
    errors: list[str]
    calls: str = ""
    failed: int = 0


def forked(work: Callable[[], object], output: Path | None = None) -> int:
    """Run a function in a fork; returns its exit code, below 0 the negative number of a signal.

    Args:
        work: its value is the exit code if it is a number.
        output: file for stderr; stdout is dropped.
    """
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        status = os.waitpid(pid, 0)[1]
        return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    code = 99
    try:
        signal.alarm(_HANGS_S)
        if output is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        value = work()
        code = value if isinstance(value, int) else 0
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:  # noqa: BLE001 - the fork must not return
        traceback.print_exc()
    finally:
        os._exit(code)


def set_places(disk: Path) -> None:
    """Let this process keep its temporary files, its cache and the home of its user on the small disk."""
    tempfile.tempdir = None
    for name, place in FOLDERS.items():
        os.environ[name] = str(disk / place)


def run_forked(job: Job, given: Path, disk: Path, notes: Path, fault: Fault | None) -> Ended:
    """Run a job in a fork; a fault of a call is injected there."""
    output, counts, modules = notes / "output", notes / "counts", notes / "modules"
    counts.unlink(missing_ok=True)

    def work() -> int:
        from lsr_prod.jobs.command import main

        set_places(disk)
        read, write = os.pipe()
        os.write(write, job.stdin.encode())
        os.close(write)
        os.dup2(read, 0)
        failing = NoSpace(disk)
        calls = fault is not None and fault.kind in ("call", "once")
        failing.arm(fault.at if calls else None, once=fault is not None and fault.kind == "once",
                    error=fault.error if fault else 0)  # fmt: skip
        try:
            return main(job.arguments(given, disk / "world"))
        finally:
            counts.write_text(json.dumps(failing.disarm()))
            modules.write_text("\n".join(sys.modules))

    code = forked(work, output)
    if fault is None:
        _import(modules.read_text().splitlines())
    calls, failed = json.loads(counts.read_text()) if counts.exists() else ("", 0)
    return Ended(code, _errors(output), calls, failed)


def _import(names: list[str]) -> None:
    """Import what a fork has imported, so that the next one is quick."""
    for name in names:
        if name not in sys.modules:
            with suppress(ImportError, AttributeError):  # made by a library while it runs
                importlib.import_module(name)


def run_process(job: Job, given: Path, disk: Path, notes: Path) -> Ended:
    """Run a job that starts Ray, whose own files are on a disk with room."""
    output = notes / "output"
    places = {name: str(disk / place) for name, place in FOLDERS.items() if name != "TMPDIR"}
    environment = {**os.environ, **places, "LD_PRELOAD": ""}
    with output.open("wb") as file:
        done = subprocess.run(
            [sys.executable, "-m", "lsr_prod", *job.arguments(given, disk / "world")],
            env=environment, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=file, timeout=600,
        )  # fmt: skip
    return Ended(done.returncode, [line for line in _errors(output) if not _RAY.match(line)])


def _errors(output: Path) -> list[str]:
    lines = output.read_text(errors="replace").splitlines() if output.exists() else []
    return [line for line in lines if line.strip() and not line.startswith("{")]
