"""A scene: one pair of tables, a source that changes, and processes that work on them under faults."""

import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from lsr_prod import errors
from lsr_prod.encoding.commit.markers import MARKERS_FOLDER
from lsr_prod.encoding.tables import open_table
from tests.faults.attempts import Attempt, Ended, Launcher
from tests.faults.chain import SourceChain
from tests.faults.oracle import Findings, Vectors, inspect, vectors
from tests.faults.protocol import Job
from tests.faults.script import Script

__all__ = ["DAY", "Detected", "Scene", "undisturbed"]

DAY = 86_400.0
_ATTEMPTS = 2  # an attempt may end with "run the job again" after a fault


class Detected(Exception):  # noqa: N818 (no error: the purpose of a mutant)
    """The oracle has found something, and the rest of the scenario does not matter."""


class Scene:
    """The tables and the source of one scenario.

    Args:
        start: starts attempts.
        folder: of the source, which changes during the scene.
        chain: states of the source.
        baseline: contents of the table after every state, of a run without faults.
        job: tables of the scene.
        stop: raise ``Detected`` as soon as the oracle finds something.
    """

    def __init__(
        self,
        start: Launcher,
        folder: Path,
        chain: SourceChain,
        baseline: tuple[Vectors, ...],
        job: Job,
        *,
        stop: bool = False,
    ) -> None:
        self._stop = stop
        self._start, self._folder, self.chain, self._baseline = start, folder, chain, baseline
        self._words: list[str] = []
        self._finished: list[int] = []
        self._abandoned: Counter[tuple[str, int, str | None, str]] = Counter()
        self.state = 0
        self.findings = Findings()
        self.crashes: list[str] = []
        self.job = replace(job, paths=chain.place(folder, 0))

    def change_source(self, state: int) -> None:
        """Bring the source into a state."""
        self.state = state
        self.job = replace(self.job, paths=self.chain.place(self._folder, state))

    @contextmanager
    def start(self, script: Script) -> Iterator[Attempt]:
        """Start a process; it is killed at the end of the block."""
        if script.flaky is not None:
            self._words.append(script.flaky)
        with self._start.start(self.job, script) as attempt:
            yield attempt

    def run(self, script: Script) -> Ended:
        """Run a process until it ends."""
        with self.start(script) as attempt:
            return self.ended(attempt)

    def reach(self, attempt: Attempt) -> None:
        """Wait until a process reaches its next gate.

        Raises:
            RuntimeError: it ended before, so that the scenario tests nothing; a mutant may do so.
        """
        if not attempt.until_gate() and not self._stop:
            raise RuntimeError(f"a process ended before its gate: {attempt.finish()}")

    def ended(self, attempt: Attempt) -> Ended:
        """Wait for the end of a process, and record errors that are not those of the product."""
        ended = attempt.finish()
        kind = ended.detail.split(" ")[0]
        if ended.how == "error" and not hasattr(errors, kind):
            self.crashes.append(ended.detail)
        return ended

    def abandon(self, state: int) -> None:
        """Give up the increment to the present state, which has committed waves, and encode another state."""
        left = self.chain.expected(self._states()).quarantine - self.chain.expected(self._finished).quarantine
        self._abandoned += left
        self.change_source(state)
        self.run(Script(abandon=True))

    def compact(self) -> None:
        """Compact the sparse table."""
        self.run(Script(work="compact"))

    def vacuum(self, *keep: int) -> None:
        """Delete garbage that is older than a day from both tables."""
        self.run(Script(work="vacuum", retention=DAY, keep=keep))

    def age(self) -> None:
        """Let every file of the tables look a month old."""
        when = time.time() - 30 * DAY
        for store in self.job.stores:
            for path in Path(store.uri).rglob("*"):
                if path.is_file():
                    os.utime(path, (when, when))

    def forget_markers(self) -> None:
        """Let a vacuum delete the markers of cells, as it does if an attempt stalls for longer than the retention."""
        self.age()
        self.vacuum()

    def delete_markers(self, wave: int) -> None:
        """Delete the markers of a wave, as an attempt does that ends with too many bad rows."""
        table = self.job.stores[0]
        for name in table.names(MARKERS_FOLDER):
            if name.split("/")[-2] == str(wave):
                table.delete(name)

    def finish(self, flaky: str | None = None) -> None:
        """Let undisturbed attempts finish the work, and check every row.

        Args:
            flaky: see ``Script``.
        """
        for _ in range(_ATTEMPTS):
            ended = self.run(Script(flaky=flaky))
            if ended.how == "done":
                break
        self.check(finished=True)
        if self._finished[-1:] != [self.state]:
            self._finished.append(self.state)

    def check(self, *, finished: bool) -> None:
        """Check the newest snapshot.

        Args:
            finished: every row must be in a table; otherwise also contents of the last finished state are accepted.
        """
        states, before = self._states(), self._finished[-1:]
        expected = dict(self._baseline[self.state]) if self._baseline else {}
        if before and not finished:
            for name, contents in self._baseline[before[0]].items():
                expected[name] = contents | expected.get(name, frozenset())
        found = inspect(
            self.job,
            self.chain.expected(states),
            expected,
            finished=finished,
            flaky=self._words,
            before=self.chain.expected(before) if before else None,
            abandoned=self._abandoned,
        )
        self._add(found)

    def check_version(self, version: int, state: int) -> None:
        """Check an older version of the sparse table."""
        now = self.chain.expected(self._states())
        corpus = replace(self.chain.expected([state]), quarantine=now.quarantine, former=now.rows + now.former)
        self._add(inspect(self.job, corpus, self._baseline[state], finished=True, version=version))

    def _states(self) -> list[int]:
        return self._finished if self._finished[-1:] == [self.state] else [*self._finished, self.state]

    def _add(self, found: Findings) -> None:
        self.findings.add(found)
        if self._stop and not found.clean:
            raise Detected

    def version(self) -> int:
        """Return the number of the newest version of the sparse table."""
        table = open_table(self.job.stores[0])
        assert table is not None
        return table.version

    def contents(self) -> Vectors:
        """Return the contents of the sparse table."""
        return vectors(self.job)


def undisturbed(start: Launcher, folder: Path, chain: SourceChain) -> tuple[Vectors, ...]:
    """Run the chain without faults and return the contents of the table after every state.

    Raises:
        RuntimeError: the run without faults lost, doubled or changed a row.
    """
    scene = Scene(start, folder / "source", chain, (), Job((), str(folder / "table"), {}))
    found = []
    for state in range(len(chain)):
        scene.change_source(state)
        scene.finish()
        found.append(scene.contents())
    if not scene.findings.clean or scene.crashes:
        raise RuntimeError(f"the run without faults is wrong: {scene.findings.sentences[:5]} {scene.crashes[:1]}")
    return tuple(found)
