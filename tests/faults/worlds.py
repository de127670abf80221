"""Worlds: a table and a list of faults drawn from a seed; the tables are checked after each fault.

After a fault the next attempt continues with the tables of the last one. If the work is finished before all faults were
injected, the world starts again with a new table. At the end an undisturbed attempt finishes the work, and every row
must have its expected outcome.
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
"""Phases of the protocol and their approximate duration in seconds."""

_CALLS = {"plan": 400, "write": 60, "read-back": 60, "commit": 300, "after-commit": 60}


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault to inject.

    Attributes:
        kind: ``kill``, ``enospc``, ``eio``, ``torn``, ``missing``, ``landed``, ``refused``, ``zombie`` or ``skew``.
        where: the phase, or the failing call.
    """

    kind: str
    where: str


@dataclass(slots=True)
class Tally:
    """Results of all worlds.

    Attributes:
        landed: injected faults by ``kind.where``, with the phase they actually hit.
        findings: errors that the oracle found.
        endings: number of attempts by fault and kind of end.
    """

    landed: Counter[str] = field(default_factory=Counter)
    findings: Findings = field(default_factory=Findings)
    endings: Counter[str] = field(default_factory=Counter)

    def add(self, other: "Tally") -> None:
        """Add the results of another world."""
        self.landed += other.landed
        self.endings += other.endings
        self.findings.add(other.findings)


class World:
    """One world and its faults.

    Args:
        launcher: starts attempts.
        job: of the world; a number is appended to the folder of the table at every start.
        corpus: source of the job.
        expected: vectors of an undisturbed run.
        rng: of all random choices.
        flaky: documents fail in some attempts and not in others.
        disk: disk of the table, if it can be filled.
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
        """Inject every fault, then finish the work and check the tables."""
        self._begin()
        for fault in faults:
            while not self._inject(fault):
                self._close()
                self._begin()
            self._check(finished=False)
        self._close()
        return self.tally

    def _begin(self) -> None:
        self._beginnings += 1
        self._words = []
        self.job = replace(self._job, table=f"{self._job.table}-{self._beginnings}")

    def _close(self) -> None:
        """Run an undisturbed attempt; it finishes the table or finds it finished."""
        ended = self._launcher.run(self.job, Script(flaky=self._word()))
        self.tally.findings.note("lost", int(ended.how != "done"), f"{self.job.table} cannot be finished: {ended}")
        self._check(finished=True)
        if "://" not in self.job.table:
            damage.clear(self.job)

    def _check(self, *, finished: bool) -> None:
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

    def _inject(self, fault: Fault) -> bool:
        """Inject a fault; return False if the work was finished before."""
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
        if self._rng.random() < 0.5:  # at a chosen call, always the same for a seed
            calls = int(_CALLS[phase] ** self._rng.random())
            ended = self._launcher.run(self.job, self._script(Script(kill=(phase, nth, calls))))
            return ended.phase if ended.how == "killed" else None
        with self._launcher.start(self.job, self._script(Script())) as attempt:  # at any moment, also inside delta-rs
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
        """Inject an error into a commit, and a kill soon after it, so that the world continues."""
        kill = ("after-commit", self._rng.randint(1, 2), self._rng.randint(1, 20))
        ended = self._launcher.run(self.job, self._script(replace(script, kill=kill)))
        self._ended(kind, ended)
        return "commit" if kind in ended.faults else None

    def _torn(self, _: str) -> str | None:
        return self._damage("torn", lambda: damage.tear(self.job, self._rng))

    def _missing(self, _: str) -> str | None:
        return self._damage("missing", lambda: damage.remove(self.job, self._rng))

    def _damage(self, kind: str, strike: Callable[[], damage.Damaged | None]) -> str | None:
        """Damage a part after all parts of a wave are written, then continue with this attempt or the next one."""
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
                self._check(finished=False)
        self._ended("enospc", ended)
        return phase if ended.how == "error" else None

    def _zombie(self, phase: str) -> str | None:
        """Stop an attempt, let a newer one work until it dies or finishes, then continue the older one."""
        gate = Script(gate=(phase, self._nth(phase))) if self._rng.random() < 0.5 else Script()
        with self._launcher.start(self.job, self._script(gate)) as older:
            if not self._stop(older, gate, phase):
                return None
            with self._newer() as newer:
                if self._rng.random() < 0.5:
                    newer.finish()
                older.resume()
                if gate.gate:
                    older.proceed()
                ended = older.finish()
                newer.finish()
        self._ended("zombie", ended)
        return phase

    def _stop(self, attempt: Attempt, gate: Script, phase: str) -> bool:
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
        """Run two attempts with clocks hours apart."""
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
