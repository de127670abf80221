"""Let the writes of every job fail in turn, and check how it ends, what it leaves, and that it completes with room."""

import errno
import fnmatch
import hashlib
import random
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lsr_prod.storage.disk import is_draft
from tests.faults.full_disk.attempt import Ended, Fault, forked, run_forked, run_process, set_places
from tests.faults.full_disk.disk import SmallDisk
from tests.faults.full_disk.followers import LIMITS, follow_on_a_full_disk
from tests.faults.full_disk.jobs import Job

__all__ = ["COUNTS", "Campaign", "Found"]

COUNTS = ("full_disk_points", "raw", "signals", "half_published", "unequal_after_resume")

_CALLS, _OF_A_KIND = 40, 4  # failing calls per job, about, and the fewest of each kind
_LIMITS = 8  # sizes of the disk, in pages and in inodes
_ON_RAY = 2  # sizes of the disk for a job that starts Ray
_ERRORS = (errno.ENOSPC, errno.ENOSPC, errno.EDQUOT, errno.ENOSPC, errno.EIO)
_REMEDY = re.compile(r"\b(free|fix|raise|mount|room)\b")


@dataclass(slots=True)
class Found:
    """Counts of what a campaign found."""

    counts: Counter[str] = field(default_factory=Counter)
    points: Counter[str] = field(default_factory=Counter)

    def note(self, kind: str, sentence: str) -> None:
        """Count and print a finding."""
        self.counts[kind] += 1
        print(f"FOUND {kind}: {sentence}", flush=True)


@dataclass(frozen=True, slots=True)
class Undisturbed:
    """Result of a job on a disk with room.

    Attributes:
        stable: digest of every file that is equal in two runs.
        names: every file.
        calls: kind of each call that needs space, one letter each.
        used: pages and inodes that the run takes.
    """

    stable: Mapping[str, str]
    names: frozenset[str]
    calls: str
    used: tuple[int, int]


class Campaign:
    """Runs jobs on one small disk.

    Args:
        given: the inputs.
        disk: the small disk.
        notes: folder for outputs of the runs.
        seed: of the choice of points.
        share: one of this many points is taken.
    """

    def __init__(self, given: Path, disk: SmallDisk, notes: Path, seed: int, share: int) -> None:
        self._given, self._disk, self._notes, self._share = given, disk, notes, share
        self._random = random.Random(f"full disk {seed}")
        self.found = Found()

    def run(self, job: Job) -> None:
        """Run a job at all of its points."""
        began = time.monotonic()
        undisturbed = self._undisturbed(job)
        for fault in self._plan(job, undisturbed):
            self._point(job, undisturbed, fault)
        seconds, points = time.monotonic() - began, self.found.points[job.name]
        print(f"{job.name}: {points} points of {len(undisturbed.calls)} calls, {seconds:.0f} s", flush=True)

    def follow(self, s3: Mapping[str, str]) -> None:
        """Fill the node cache of searchers and replicas that follow an index."""
        for limit in LIMITS[:: min(self._share, len(LIMITS))]:
            self._disk.clear()
            name = "follow-" + "-".join(map(str, limit.values())) + next(iter(limit))
            given, output = self._notes / name, self._notes / "output"
            given.mkdir()

            def work(given: Path = given, limit: Mapping[str, int] = limit) -> None:
                set_places(self._disk.folder)
                follow_on_a_full_disk(given, self._disk, s3, limit)

            code = forked(work, output)
            self._disk.roomy()
            self.found.points["follow"] += 1
            self.found.counts["full_disk_points"] += 1
            if code:
                kind = "signals" if code < 0 else "raw"
                self.found.note(kind, f"searchers that follow, {limit}: {output.read_text().splitlines()[-3:]}")

    def _undisturbed(self, job: Job) -> Undisturbed:
        results, calls, used = [], "", (0, 0)
        for _ in range(1 if job.results else 2):
            self._begin(job)
            before = self._disk.used()
            ended = self._run(job, None)
            if ended.code:
                raise RuntimeError(f"{job.name} fails on a disk with room: {ended.code}, {ended.errors[-5:]}")
            after = self._disk.used()
            calls, used = ended.calls, (after[0] - before[0], after[1] - before[1])
            results.append(self._files(job))
        first, second = results[0], results[-1]
        stable = {name: digest for name, digest in first.items() if second.get(name) == digest}
        for name in fnmatch.filter(stable, job.last):
            del stable[name]  # it has a time, which two runs in one second share
        if job.results:
            stable = {name: stable[name] for pattern in job.results for name in fnmatch.filter(stable, pattern)}
            assert stable, f"{job.name} has no results {job.results}: {sorted(first)}"
        return Undisturbed(stable, frozenset(first), calls, used)

    def _plan(self, job: Job, undisturbed: Undisturbed) -> list[Fault]:
        if job.on_ray:  # a run takes half a minute
            most = (("pages", undisturbed.used[0]), ("inodes", undisturbed.used[1]))
            return [Fault(kind, at) for kind, count in most for at in self._some(count, _ON_RAY // 2)]
        faults = [
            Fault("once" if number % 3 == 2 else "call", call, _ERRORS[number % len(_ERRORS)])
            for number, call in enumerate(self._calls(undisturbed.calls, job.share))
        ]
        for kind, most in (("pages", undisturbed.used[0]), ("inodes", undisturbed.used[1])):
            faults += [Fault(kind, at) for at in self._some(most, _LIMITS // job.share)]
        return faults

    def _calls(self, kinds: str, share: int) -> list[int]:
        """Return numbers of calls: of rare kinds, such as creations of folders, more than of frequent ones."""
        if self._share > 1 or share > 1:
            return self._some(len(kinds), _CALLS // share)
        chosen: list[int] = []
        for kind in sorted(set(kinds)):
            calls = [call for call, other in enumerate(kinds) if other == kind]
            most = max(_CALLS * len(calls) // len(kinds), _OF_A_KIND)
            chosen += [calls[number] for number in self._some(len(calls), most)]
        return chosen

    def _some(self, count: int, most: int) -> list[int]:
        """Return numbers below ``count``, evenly spread from a random start; all if they are not more than ``most``."""
        wanted = max(min(count, most) // self._share, min(count, 1))
        start = self._random.random()
        return [int((number + start) * count / wanted) for number in range(wanted)]

    def _point(self, job: Job, undisturbed: Undisturbed, fault: Fault) -> None:
        self._begin(job)
        before = self._files(job)
        if fault.kind in ("pages", "inodes"):
            self._disk.limit(**{fault.kind: fault.at})
        ended = self._run(job, fault)
        self._disk.roomy()
        if not ended.failed and not ended.code:
            return  # it had room
        self.found.points[job.name] += 1
        self.found.counts["full_disk_points"] += 1
        where = f"{job.name}, {fault}: "
        self._check_end(ended, where)
        for problem in self._left(job, undisturbed, before):
            self.found.note("half_published", where + problem)
        again = self._run(job, None)
        if again.code:
            self.found.note("unequal_after_resume", f"{where}exit code {again.code}, {again.errors[-3:]}")
            return
        after = self._files(job)
        wrong = sorted(name for name, digest in undisturbed.stable.items() if after.get(name) != digest)
        if wrong or (not job.on_ray and len(after) != len(undisturbed.names)):
            more = sorted(after.keys() - undisturbed.names)
            self.found.note("unequal_after_resume", f"{where}{wrong[:3]} differ, {more[:3]} are more")

    def _begin(self, job: Job) -> None:
        self._disk.clear()
        job.begin(self._given, self._disk.folder / "world")

    def _run(self, job: Job, fault: Fault | None) -> Ended:
        if job.on_ray:
            return run_process(job, self._given, self._disk.folder, self._notes)
        return run_forked(job, self._given, self._disk.folder, self._notes, fault)

    def _check_end(self, ended: Ended, where: str) -> None:
        if ended.code < 0:
            self.found.note("signals", f"{where}signal {-ended.code}, {ended.errors[-3:]}")
            return
        if ended.code == 0:  # what could not be written is no result, such as an entry of a cache
            if ended.errors:
                self.found.note("raw", f"{where}exit code 0, but {ended.errors[-3:]}")
            return
        said = ended.errors[-1] if ended.errors else ""
        named = str(self._disk.folder) in said and _REMEDY.search(said) and "does not expect" not in said
        if ended.code != 1 or len(ended.errors) != 1 or not named:
            self.found.note("raw", f"{where}exit code {ended.code}, {ended.errors[-5:]}")

    def _left(self, job: Job, undisturbed: Undisturbed, before: Mapping[str, str]) -> list[str]:
        """Return what a failed run left behind that is neither as it was before nor as it is at the end."""
        folder, after, stable = self._disk.folder, self._files(job), undisturbed.stable
        problems = [f"{path} is left" for path in sorted((folder / "tmp").iterdir())]
        problems += [f"{path} is left" for path in folder.rglob("*") if is_draft(path.name)]
        changed = {name for name, digest in after.items() if before.get(name) != digest}
        problems += [
            f"{name} is neither old nor new" for name in changed if stable.get(name, after[name]) != after[name]
        ]
        for pattern in job.whole:
            for place in folder.glob(pattern):
                prefix = f"{place.relative_to(folder)}/"
                absent = [name for name in stable if name.startswith(prefix) and name not in after]
                problems += [f"{prefix} lacks {absent[0]}"] if absent and place.is_dir() else []
        if job.last and fnmatch.filter(changed, job.last):
            absent = [name for name in stable if name not in after]
            problems += [f"{job.last} is there, but {absent[0]} is not"] if absent else []
        return problems

    def _files(self, job: Job) -> dict[str, str]:
        """Return the sha256 of every file by its path on the disk."""
        folder = self._disk.folder
        names: Sequence[str] = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
        ignored = ("tmp/", "home/", "cache/digests", *job.ignored)
        return {
            name: hashlib.sha256((folder / name).read_bytes()).hexdigest()
            for name in names
            if not name.startswith(ignored) and not name.endswith((".part", ".use")) and not is_draft(name)
        }
