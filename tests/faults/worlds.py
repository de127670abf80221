"""Worlds: a table, a list of faults drawn from the seed, and after each of them a look at the tables.

A world goes on after a fault where the last attempt left it. One that is finished before its faults are used up starts
again with a new table. At its end an undisturbed attempt finishes the work, and everything has to be accounted for.
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from tests.faults import damage
from tests.faults.attempts import Attempt, Ended, Launcher
from tests.faults.committer import Script
from tests.faults.corpus import Corpus
from tests.faults.disk import Disk
from tests.faults.oracle import Findings, Vectors, inspect
from tests.faults.protocol import Job

__all__ = ["PHASES", "Fault", "Tally", "World"]

PHASES = {"plan": 0.02, "write": 0.004, "read-back": 0.001, "commit": 0.02, "after-commit": 0.003}
"""The phases of the protocol and about how many seconds each takes here."""

_CALLS = {"plan": 400, "write": 60, "read-back": 60, "commit": 300, "after-commit": 60}


@dataclass(frozen=True, slots=True)
class Fault:
    """What is to happen.

    Attributes:
        kind: ``kill``, ``enospc``, ``eio``, ``torn``, ``missing``, ``landed``, ``refused``, ``zombie`` or ``skew``.
        where: the phase, or the call that fails.
    """

    kind: str
    where: str


@dataclass(slots=True)
class Tally:
    """What happened, over all worlds.

    Attributes:
        landed: faults by ``kind.where``, where they really struck.
        findings: what the oracle found.
        endings: how attempts that met a fault ended, by kind.
    """

    landed: Counter[str] = field(default_factory=Counter)
    findings: Findings = field(default_factory=Findings)
    endings: Counter[str] = field(default_factory=Counter)

    def add(self, other: "Tally") -> None:
        """Add another world's."""
        self.landed += other.landed
        self.endings += other.endings
        self.findings.add(other.findings)


class World:
    """One world and its faults.

    Args:
        launcher: starts attempts.
        job: its work; the table's folder is extended by a number at every new beginning.
        corpus: what it reads.
        expected: vectors of an undisturbed run.
        rng: every choice comes from here.
        flaky: whether documents fail in some attempts and not in others.
        disk: where the table lies, if it can be filled.
    """

    def __init__(
        self,
        launcher: Launcher,
        job: Job,
        corpus: Corpus,
        expected: Vectors,
        rng: random.Random,
        *,
        flaky: bool = False,
        disk: Disk | None = None,
    ) -> None:
        self._launcher, self._job, self._corpus, self._expected = launcher, job, corpus, expected
        self._rng, self._flaky, self._disk = rng, flaky, disk
        self._beginnings = 0
        self._words: list[str] = []
        self.tally = Tally()
        self.job = job

    def run(self, faults: list[Fault]) -> Tally:
        """Meet every fault, then finish and judge."""
        self._begin()
        for fault in faults:
            while not self._meet(fault):
                self._close()
                self._begin()
            self._judge(finished=False)
        self._close()
        return self.tally

    def _begin(self) -> None:
        self._beginnings += 1
        self._words = []
        self.job = replace(self._job, table=f"{self._job.table}-{self._beginnings}")

    def _close(self) -> None:
        """The undisturbed attempt; a table that was finished is found so."""
        ended = self._launcher.run(self.job, Script(flaky=self._word()))
        self.tally.findings.note("lost", int(ended.how != "done"), f"{self.job.table} cannot be finished: {ended}")
        self._judge(finished=True)
        if "://" not in self.job.table:
            damage.clear(self.job)

    def _judge(self, *, finished: bool) -> None:
        found = inspect(self.job, self._corpus, self._expected, finished=finished, flaky=self._words)
        found.sentences = [f"{self.job.table}: {sentence}" for sentence in found.sentences]
        self.tally.findings.add(found)

    def _word(self) -> str | None:
        if not self._flaky:
            return None
        self._words.append(f"{self._rng.random():.9f}")
        return self._words[-1]

    def _script(self, script: Script) -> Script:
        return replace(script, flaky=self._word())

    def _meet(self, fault: Fault) -> bool:
        """Bring a fault about; False if the work was finished before it could strike."""
        where = getattr(self, f"_{fault.kind}")(fault.where)
        if where is None:
            return False
        self.tally.landed[f"{fault.kind}.{where}"] += 1
        return True

    def _ended(self, kind: str, ended: Ended) -> None:
        self.tally.endings[f"{kind}: {ended.detail.split(' ')[0] if ended.how == 'error' else ended.how}"] += 1

    def _nth(self, phase: str) -> int:
        return 1 if phase in ("plan", "commit", "after-commit") else self._rng.randint(1, 6)

    def _kill(self, phase: str) -> str | None:
        nth = self._nth(phase)
        if self._rng.random() < 0.5:  # at a chosen call, again and again the same
            calls = int(_CALLS[phase] ** self._rng.random())
            ended = self._launcher.run(self.job, self._script(Script(kill=(phase, nth, calls))))
            return ended.phase if ended.how == "killed" else None
        with self._launcher.start(self.job, self._script(Script())) as attempt:  # at any moment, delta-rs's too
            if not attempt.until(phase, nth):
                return None
            time.sleep(self._rng.random() * PHASES[phase])
            ended = attempt.kill()
        return ended.phase if ended.how == "killed" else None

    def _eio(self, call: str) -> str | None:
        ended = self._launcher.run(self.job, self._script(Script(eio=(call, self._rng.randint(1, 12)))))
        self._ended("eio", ended)
        return call if call in ended.faults else None

    def _landed(self, _: str) -> str | None:
        return self._commit_error("landed", Script(landed=self._rng.randint(1, 4)))

    def _refused(self, _: str) -> str | None:
        return self._commit_error("refused", Script(refused=self._rng.randint(1, 4)))

    def _commit_error(self, kind: str, script: Script) -> str | None:
        """An error of a commit, and soon after it, so that the world goes on, a kill."""
        kill = ("after-commit", self._rng.randint(1, 2), self._rng.randint(1, 20))
        ended = self._launcher.run(self.job, self._script(replace(script, kill=kill)))
        self._ended(kind, ended)
        return "commit" if kind in ended.faults else None

    def _torn(self, _: str) -> str | None:
        return self._damage("torn", lambda: damage.tear(self.job, self._rng))

    def _missing(self, _: str) -> str | None:
        return self._damage("missing", lambda: damage.remove(self.job, self._rng))

    def _damage(self, kind: str, strike: Callable[[], damage.Damaged | None]) -> str | None:
        """Every part of a wave is written, then one of them suffers, then the attempt or the next one goes on."""
        with self._launcher.start(self.job, self._script(Script(gate=("commit", 1)))) as attempt:
            if not attempt.until_gate():
                return None
            struck = strike()
            if struck is None:
                return None
            if self._rng.random() < 0.5:
                return f"{struck.whose}-then-killed"
            attempt.proceed()
            ended = attempt.finish()
        self._ended(kind, ended)
        where = f"{struck.store.uri}/{struck.name}"
        self.tally.findings.note("torn_visible", int(struck.committed()), f"{where} is damaged and committed ({ended})")
        return struck.whose

    def _enospc(self, phase: str) -> str | None:
        assert self._disk is not None
        with self._launcher.start(self.job, self._script(Script(gate=(phase, self._nth(phase))))) as attempt:
            if not attempt.until_gate():
                return None
            with self._disk.filled(self._rng.randrange(3)):
                attempt.proceed()
                ended = attempt.finish()
                self._judge(finished=False)
        self._ended("enospc", ended)
        return phase if ended.how == "error" else None

    def _zombie(self, phase: str) -> str | None:
        """One attempt stands still, a newer one works and dies or finishes, then the older one goes on."""
        gate = Script(gate=(phase, self._nth(phase))) if self._rng.random() < 0.5 else Script()
        with self._launcher.start(self.job, self._script(gate)) as older:
            if not self._stands_still(older, gate, phase):
                return None
            with self._newer() as newer:
                if self._rng.random() < 0.5:
                    newer.finish()
                older.go_on()
                if gate.gate:
                    older.proceed()
                ended = older.finish()
                newer.finish()
        self._ended("zombie", ended)
        return phase

    def _stands_still(self, attempt: Attempt, gate: Script, phase: str) -> bool:
        if gate.gate:
            return attempt.until_gate()
        if not attempt.until(phase, self._nth(phase)):
            return False
        time.sleep(self._rng.random() * PHASES[phase])
        attempt.stop()
        return True

    @contextmanager
    def _newer(self) -> Iterator[Attempt]:
        kill = (
            self._rng.choice(["write", "commit", "after-commit"]),
            self._rng.randint(1, 2),
            self._rng.randint(1, 60),
        )
        with self._launcher.start(self.job, self._script(Script(kill=kill))) as attempt:
            yield attempt

    def _skew(self, where: str) -> str | None:
        """Two attempts whose clocks are hours off, one to each side."""
        hours = self._rng.randint(1, 48) * 3600 * self._rng.choice([-1, 1])
        late = self._script(Script(gate=(where, 1), skew=hours))
        kill = ("after-commit", 1, self._rng.randint(1, 20))
        with self._launcher.start(self.job, late) as older:
            if not older.until_gate():
                return None
            ended = self._launcher.run(self.job, self._script(Script(skew=-hours, kill=kill)))
            older.proceed()
            self._ended("skew", older.finish())
        return where if "skew" in ended.faults else None
