"""Run the tests of many mutants in one pytest session, each mutant in a fork of the process that collected the tests.

The process imports the product and collects the tests once. Before the mutants, the tests run without one, in forks
too: tests that fail then detect nothing, and the lines that a test executes say which mutants it may detect. A mutant
is the code object of one function that a fork replaces in the imported module.
"""

import gc
import importlib
import itertools
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import pytest

from tests.mutation.operators import Mutant, mutated_code
from tests.mutation.targets import SLOW_FIXTURES, SLOW_TESTS, files_of_tests

__all__ = ["Outcome", "run_mutants"]

_KILLED, _SURVIVED = 1, 0
_MEMORY = 6 << 30  # bytes: a mutant may allocate without end


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a mutant.

    Attributes:
        mutant: the change.
        killed: a test failed, or the limits of time and memory were exceeded.
        by: the test that failed; "" if none did.
        tests: number of tests that execute the changed lines.
        seconds: duration.
    """

    mutant: Mutant
    killed: bool
    by: str
    tests: int
    seconds: float


@dataclass(frozen=True, slots=True)
class _Test:
    """A test without a mutant: its item, its duration, and the lines that it executes by file."""

    item: pytest.Item
    seconds: float
    lines: dict[str, frozenset[int]]


def run_mutants(
    root: Path, mutants: Sequence[Mutant], report: Callable[[Outcome], None], *, processes: int, budget: float
) -> int:
    """Run the tests of mutants; return the number of tests that fail without a mutant, which detect nothing.

    Args:
        root: folder of the package.
        mutants: the changes.
        report: called with the outcome of each mutant.
        processes: mutants at a time.
        budget: seconds of processor time for the tests of a mutant, as they take without it; the fastest are used.
    """
    paths = sorted({path for mutant in mutants for path in files_of_tests(mutant.file) if Path(path).exists()})
    options = ["-s", "-q", "--no-header", "--no-summary", "--timeout=0"]
    options += ["--hypothesis-seed=0", "-m", "not slow", "-p", "no:cacheprovider", "-p", "no:xdist"]
    session = _Session(root, mutants, report, processes, budget)
    if pytest.main([*options, *paths], [session]) != pytest.ExitCode.OK:
        raise RuntimeError(f"pytest could not collect the tests in {', '.join(paths)}; see above")
    return session.wrong


class _Session:
    """Plugin of pytest that replaces the loop over the tests."""

    def __init__(
        self, root: Path, mutants: Sequence[Mutant], report: Callable[[Outcome], None], processes: int, budget: float
    ) -> None:
        self._root, self._mutants, self._report = root, mutants, report
        self._processes, self._budget = processes, budget
        self.wrong = 0
        self._failed = False
        self._killers: dict[tuple[str, str], set[str]] = {}  # tests that detected a mutant of a function, to try first

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        from hypothesis import Phase, settings  # not earlier: pytest prepares the package for its assertions

        phases = [Phase.explicit, Phase.generate]
        settings.register_profile("mutation", deadline=None, max_examples=100, database=None, phases=phases)
        settings.load_profile("mutation")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if not _is_slow(item)]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed |= report.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = session.items
        for file in {mutant.file for mutant in self._mutants}:
            importlib.import_module(".".join([self._root.name, *Path(file).with_suffix("").parts]))
        with tempfile.TemporaryDirectory(prefix="lsr-mutation-", ignore_cleanup_errors=True) as name:
            tests = self._run_unchanged(items, Path(name))
            functions = _live_functions({str(self._root / mutant.file) for mutant in self._mutants})
            jobs = [self._job(mutant, tests, functions, Path(name)) for mutant in self._mutants]
            for _ in _in_forks(jobs, self._processes):
                pass
        return True

    def _run_unchanged(self, items: Sequence[pytest.Item], folder: Path) -> list[_Test]:
        files = {str(self._root / mutant.file) for mutant in self._mutants}
        groups: dict[Path, list[int]] = {}
        for place, item in enumerate(items):
            groups.setdefault(item.path, []).append(place)
        jobs = [
            _Fork(lambda places=places, at=folder / f"{number}.json": self._trace(items, places, files, at), folder)
            for number, places in enumerate(groups.values())
        ]
        tests: list[_Test] = []
        wrong: list[str] = []
        for fork in _in_forks(jobs, self._processes):
            output = folder / f"{jobs.index(fork)}.json"
            if not output.exists():
                wrong.append(f"the tests of {list(groups)[jobs.index(fork)]} ended with {fork.status}")
                continue
            for place, failed, seconds, lines in json.loads(output.read_text()):
                if failed:
                    wrong.append(items[place].nodeid)
                else:
                    found = {file: frozenset(numbers) for file, numbers in lines.items()}
                    tests.append(_Test(items[place], seconds, found))
        for sentence in wrong:
            print(f"FAILS WITHOUT A MUTANT {sentence}", flush=True)
        self.wrong = len(wrong)
        return sorted(tests, key=lambda test: test.seconds)

    def _trace(self, items: Sequence[pytest.Item], places: Sequence[int], files: set[str], output: Path) -> int:
        found = []
        with _Lines(files) as lines:
            for at, place in enumerate(places):
                following = items[places[at + 1]] if at + 1 < len(places) else None
                began = _processor_time()
                failed = self._run(items[place], following)
                found.append((place, failed, _processor_time() - began, lines.take()))
        output.write_text(json.dumps(found))
        return 0

    def _run(self, item: pytest.Item, following: pytest.Item | None) -> bool:
        self._failed = False
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        return self._failed

    def _job(
        self,
        mutant: Mutant,
        tests: Sequence[_Test],
        functions: dict[tuple[str, str, int], list[FunctionType]],
        at: Path,
    ) -> "_Fork":
        path = str(self._root / mutant.file)
        changed = range(mutant.lines[0], mutant.lines[1] + 1)
        near = tuple(str(Path(each).absolute()) for each in files_of_tests(mutant.file))
        reached = [
            test
            for test in tests
            if not test.lines.get(path, frozenset()).isdisjoint(changed) and str(test.item.path).startswith(near)
        ]
        used = itertools.accumulate(test.seconds for test in reached)
        chosen = [test for test, seconds in zip(reached, used, strict=True) if seconds <= self._budget]

        def run() -> int:
            code = mutated_code(self._root, mutant)
            for function in functions[path, *mutant.outer]:
                function.__code__ = code
            before = self._killers.get((mutant.file, mutant.function), ())
            ordered = sorted(chosen, key=lambda test: test.item.nodeid not in before)
            for place, test in enumerate(ordered):
                _limit(test.seconds)
                following = ordered[place + 1].item if place + 1 < len(ordered) else None
                (Path(tempfile.gettempdir()) / "test").write_text(test.item.nodeid)
                if self._run(test.item, following):
                    return _KILLED
            return _SURVIVED

        def ended(fork: "_Fork") -> None:
            killed = fork.status != _SURVIVED
            test = fork.own / "test"
            by = test.read_text() if killed and test.exists() else ""
            self._killers.setdefault((mutant.file, mutant.function), set()).add(by)
            if fork.status in (-signal.SIGXCPU, -signal.SIGALRM):
                by = f"the limit of time of {by}"
            self._report(Outcome(mutant, killed, by, len(chosen), fork.seconds))

        return _Fork(run, at, ended)


def _processor_time() -> float:
    """Return the seconds of this process and of the processes that it has waited for."""
    return sum(os.times()[:4])


def _limit(seconds: float) -> None:
    """Let the system kill this process if its next test takes far longer than without a mutant.

    A loop without end is stopped by the limit of processor time, a wait without end by that of the duration.
    """
    used = sum(os.times()[:2])
    resource.setrlimit(resource.RLIMIT_CPU, (int(used + 3 + 4 * seconds), resource.RLIM_INFINITY))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, 60 + 20 * seconds)


@dataclass(eq=False)
class _Fork:
    """Work in a fork of this process; its output and its temporary files go into a folder below ``folder``."""

    work: Callable[[], int]
    folder: Path
    ended: Callable[["_Fork"], None] = field(default=lambda _: None)
    pid: int = 0
    status: int = -1
    began: float = 0
    seconds: float = 0
    own: Path = Path()

    def start(self) -> None:
        self.own = Path(tempfile.mkdtemp(dir=self.folder))
        self.began = time.monotonic()
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid:
            return
        status = 3
        try:
            os.setsid()
            output = os.open(self.own / "output", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.environ["PYTEST_DEBUG_TEMPROOT"] = os.environ["TMPDIR"] = str(self.own)
            tempfile.tempdir = None
            resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
            status = self.work()
            sys.stdout.flush()
        finally:
            os._exit(status)

    def finish(self, status: int) -> None:
        self.status, self.seconds = status, time.monotonic() - self.began
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)  # processes that its tests left
        self.ended(self)
        shutil.rmtree(self.own, ignore_errors=True)


def _in_forks(forks: Sequence[_Fork], processes: int) -> Iterator[_Fork]:
    """Run forks, some at a time, and yield each that has ended."""
    waiting, running = list(reversed(forks)), dict[int, _Fork]()
    while waiting or running:
        while waiting and len(running) < processes:
            fork = waiting.pop()
            fork.start()
            running[fork.pid] = fork
        ended = False
        for pid in list(running):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                fork = running.pop(pid)
                fork.finish(os.waitstatus_to_exitcode(status))
                ended = True
                yield fork
        if not ended:
            time.sleep(0.02)


def _live_functions(files: set[str]) -> dict[tuple[str, str, int], list[FunctionType]]:
    """Return the functions of modules by file, qualified name and first line, whatever decorates them."""
    found: dict[tuple[str, str, int], list[FunctionType]] = {}
    gc.unfreeze()  # tests/conftest.py excludes what is imported
    for each in gc.get_objects():
        if type(each) is FunctionType and each.__code__.co_filename in files:
            code: CodeType = each.__code__
            found.setdefault((code.co_filename, code.co_qualname, code.co_firstlineno), []).append(each)
    return found


class _Lines:
    """Record the lines of some files that are executed."""

    def __init__(self, files: set[str]) -> None:
        self._files = files
        self._lines: dict[str, set[int]] = {}

    def __enter__(self) -> "_Lines":
        threading.settrace(self._call)
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]

    def take(self) -> dict[str, list[int]]:
        """Return the lines since the last call."""
        taken, self._lines = self._lines, {}
        return {file: sorted(lines) for file, lines in taken.items()}

    def _call(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        return self._line if frame.f_code.co_filename in self._files else None

    def _line(self, frame: FrameType, event: str, _argument: Any) -> Any:
        if event == "line":
            self._lines.setdefault(frame.f_code.co_filename, set()).add(frame.f_lineno)
        return self._line


def _is_slow(item: pytest.Item) -> bool:
    fixtures = SLOW_FIXTURES.intersection(getattr(item, "fixturenames", ()))
    s3 = "s3" in item.name.partition("[")[2].strip("]").split("-")
    return bool(fixtures) or s3 or item.name.partition("[")[0] in SLOW_TESTS
