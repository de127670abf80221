"""Worlds: a table and a list of faults drawn from a seed; the tables are checked after each fault.

After a fault the next attempt continues with the tables of the last one. If a state of the source is finished before
all faults were injected, the source changes and increments follow; after its last state the world starts again with a
new table. Each state is finished by an undisturbed attempt, and then every row must have its expected outcome: the
contents of the tables are those of a run without faults.
"""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tests.faults import damage
from tests.faults.attempts import Attempt, Ended, Launcher
from tests.faults.chain import SourceChain
from tests.faults.disk import Disk
from tests.faults.oracle import Vectors
from tests.faults.protocol import Job
from tests.faults.scene import DAY, Scene
from tests.faults.script import Script
from tests.faults.tally import Fault, Tally

__all__ = ["PHASES", "World"]

PHASES = {"plan": 0.02, "write": 0.004, "read-back": 0.001, "commit": 0.02, "after-commit": 0.003}
"""Phases of the protocol and their approximate duration in seconds."""

_CALLS = {"plan": 400, "write": 60, "read-back": 60, "commit": 300, "after-commit": 60}


class World:
    """One world and its faults.

    Args:
        launcher: starts attempts.
        folder: of the source.
        job: of the world; a number is appended to the folder of the table at every start.
        chain: states of the source.
        baseline: contents of the table after every state, of a run without faults.
        rng: of all random choices.
        flaky: documents fail in some attempts and not in others.
        disk: disk of the table, if it can be filled.
    """

    def __init__(
        self,
        launcher: Launcher,
        folder: Path,
        job: Job,
        chain: SourceChain,
        baseline: tuple[Vectors, ...],
        rng: random.Random,
        *,
        flaky: bool = False,
        disk: Disk | None = None,
    ) -> None:
        self._launcher, self._folder, self._template, self._chain, self._baseline = (
            launcher,
            folder,
            job,
            chain,
            baseline,
        )
        self._rng, self._flaky, self._disk = rng, flaky, disk
        self._beginnings = 0
        self.tally = Tally()
        self._begin()

    def run(self, faults: list[Fault]) -> Tally:
        """Inject every fault, then finish the work and check the tables."""
        for fault in faults:
            while not self._inject(fault):
                self._close()
            self._scene.check(finished=False)
        self._close()
        self._end()
        return self.tally

    def _begin(self) -> None:
        self._beginnings += 1
        job = replace(self._template, table=f"{self._template.table}-{self._beginnings}")
        self._scene = Scene(self._launcher, self._folder, self._chain, self._baseline, job)

    def _close(self) -> None:
        """Let an undisturbed attempt finish the state of the source, and go to a later one, or to a new table."""
        scene = self._scene
        scene.finish(self._word())
        later = range(scene.state + 1, len(self._chain))
        if later:
            scene.change_source(self._rng.choice(later[:2]))
        else:
            self._end()
            self._begin()

    def _end(self) -> None:
        found, job = self._scene.findings, self._scene.job
        found.note("wrong", len(self._scene.crashes), f"an attempt ended with {self._scene.crashes[:1]}")
        found.sentences = [f"{job.table}: {sentence}" for sentence in found.sentences]
        self.tally.findings.add(found)
        if "://" not in job.table:
            damage.clear(job)

    def _word(self) -> str | None:
        return f"{self._rng.random():.9f}" if self._flaky else None

    def _script(self, script: Script) -> Script:
        return replace(script, flaky=self._word())

    def _inject(self, fault: Fault) -> bool:
        """Inject a fault; return False if the work was finished before."""
        where = getattr(self, f"_{fault.kind}")(fault.where)
        if where is None:
            return False
        self.tally.landed[f"{fault.kind}.{where}"] += 1
        self.tally.increments += self._scene.state > 0
        return True

    def _ended(self, kind: str, ended: Ended) -> None:
        self.tally.endings[f"{kind}: {ended.detail.split(' ')[0] if ended.how == 'error' else ended.how}"] += 1

    def _nth(self, phase: str) -> int:
        return 1 if phase in ("plan", "commit", "after-commit") else self._rng.randint(1, 6)

    def _kill(self, phase: str) -> str | None:
        nth = self._nth(phase)
        if self._rng.random() < 0.5:  # at a chosen call, always the same for a seed
            calls = int(_CALLS[phase] ** self._rng.random())
            ended = self._scene.run(self._script(Script(kill=(phase, nth, calls))))
            return ended.phase if ended.how == "killed" else None
        with self._scene.start(self._script(Script())) as attempt:  # at any moment, also inside delta-rs
            if not attempt.until(phase, nth):
                return None
            time.sleep(self._rng.random() * PHASES[phase])
            ended = attempt.kill()
        return ended.phase if ended.how == "killed" else None

    def _eio(self, call: str) -> str | None:
        nth = self._rng.randint(1, 4 if self._scene.state else 12)  # an increment makes fewer calls
        ended = self._scene.run(self._script(Script(eio=(call, nth))))
        self._ended("eio", ended)
        return call if call in ended.faults else None

    def _landed(self, _: str) -> str | None:
        return self._commit_error("landed", Script(landed=self._rng.randint(1, 4)))

    def _refused(self, _: str) -> str | None:
        return self._commit_error("refused", Script(refused=self._rng.randint(1, 4)))

    def _commit_error(self, kind: str, script: Script) -> str | None:
        """Inject an error into a commit, and a kill soon after it, so that the world continues."""
        kill = ("after-commit", self._rng.randint(1, 2), self._rng.randint(1, 20))
        ended = self._scene.run(self._script(replace(script, kill=kill)))
        self._ended(kind, ended)
        return "commit" if kind in ended.faults else None

    def _torn(self, _: str) -> str | None:
        return self._damage("torn", lambda: damage.tear(self._scene.job, self._rng))

    def _missing(self, _: str) -> str | None:
        return self._damage("missing", lambda: damage.remove(self._scene.job, self._rng))

    def _damage(self, kind: str, strike: Callable[[], damage.Damaged | None]) -> str | None:
        """Damage a part after all parts of a wave are written, then continue with this attempt or the next one."""
        with self._scene.start(self._script(Script(gates=(("commit", 1),)))) as attempt:
            if not attempt.until_gate():
                return None
            struck = strike()
            if struck is None:
                return None
            if self._rng.random() < 0.5:
                return f"{struck.whose}-then-killed"
            attempt.proceed()
            ended = self._scene.ended(attempt)
        self._ended(kind, ended)
        where = f"{struck.store.uri}/{struck.name}"
        self._scene.findings.note(
            "torn_visible", int(struck.committed()), f"{where} is damaged and committed ({ended})"
        )
        return struck.whose

    def _enospc(self, phase: str) -> str | None:
        assert self._disk is not None
        with self._scene.start(self._script(Script(gates=((phase, self._nth(phase)),)))) as attempt:
            if not attempt.until_gate():
                return None
            with self._disk.filled(self._rng.randrange(3)):
                attempt.proceed()
                ended = self._scene.ended(attempt)
                self._scene.check(finished=False)
        self._ended("enospc", ended)
        return phase if ended.how == "error" else None

    def _zombie(self, phase: str) -> str | None:
        """Stop an attempt, let a newer one work until it dies or finishes, then continue the older one."""
        gate = Script(gates=((phase, self._nth(phase)),)) if self._rng.random() < 0.5 else Script()
        with self._scene.start(self._script(gate)) as older:
            if not self._stop(older, gate, phase):
                return None
            with self._newer() as newer:
                if self._rng.random() < 0.5:
                    self._scene.ended(newer)
                older.resume()
                if gate.gates:
                    older.proceed()
                ended = self._scene.ended(older)
                self._scene.ended(newer)
        self._ended("zombie", ended)
        return phase

    def _stop(self, attempt: Attempt, gate: Script, phase: str) -> bool:
        if gate.gates:
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
        with self._scene.start(self._script(Script(kill=kill))) as attempt:
            yield attempt

    def _skew(self, where: str) -> str | None:
        """Run two attempts with clocks hours apart."""
        hours = self._rng.randint(1, 48) * 3600 * self._rng.choice([-1, 1])
        late = self._script(Script(gates=((where, 1),), skew=hours))
        kill = ("after-commit", 1, self._rng.randint(1, 20))
        with self._scene.start(late) as older:
            if not older.until_gate():
                return None
            ended = self._scene.run(self._script(Script(skew=-hours, kill=kill)))
            older.proceed()
            self._ended("skew", self._scene.ended(older))
        return where if "skew" in ended.faults else None

    def _compact(self, moment: str) -> str | None:
        """Compact while an attempt waits at a moment."""
        return self._maintain("compact", moment, Script(work="compact"))

    def _vacuum(self, moment: str) -> str | None:
        """Vacuum leftovers of earlier attempts while an attempt waits at a moment."""
        if "://" not in self._scene.job.table:  # the times of objects cannot be changed
            self._scene.age()
        return self._maintain("vacuum", moment, Script(work="vacuum", retention=DAY))

    def _maintain(self, kind: str, moment: str, work: Script) -> str | None:
        kill = ("after-commit", self._rng.randint(1, 2), self._rng.randint(1, 20))
        script = Script(gates=((moment, self._nth("commit")),), kill=kill)
        with self._scene.start(self._script(script)) as attempt:
            if not attempt.until_gate():
                return None
            for _ in range(self._rng.randint(1, 2)):
                self._ended(kind, self._scene.run(work))
            self._scene.check(finished=False)
            attempt.proceed()
            self._ended(f"{kind} meets", self._scene.ended(attempt))
        return moment

    def _source(self, moment: str) -> str | None:
        """Change a file while an attempt runs, and bring the old one back after it has ended."""
        with self._scene.start(self._script(Script(gates=((moment, 1),)))) as attempt:
            if not attempt.until_gate():
                return None
            path = Path(self._rng.choice(self._scene.job.paths))
            data = path.read_bytes()
            path.write_bytes(self._rng.choice([data[: len(data) // 2], data + data[:100], data[::-1], b""]))
            attempt.proceed()
            self._ended("source", self._scene.ended(attempt))
        path.write_bytes(data)
        return moment
