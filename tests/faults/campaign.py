"""The campaign against committer processes: faults distributed over worlds, all drawn from one seed."""

import random
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.faults.attempts import Launcher, launcher
from tests.faults.chain import SourceChain, make_chain
from tests.faults.corpus import make_corpus
from tests.faults.disk import small_disk
from tests.faults.oracle import Findings, Vectors, inspect, vectors
from tests.faults.protocol import Job
from tests.faults.scene import undisturbed
from tests.faults.tally import Fault, Tally
from tests.faults.worlds import PHASES, World

__all__ = ["PLACES", "Resumed", "WorldPlan", "plan_worlds", "resume_at_half", "run_worlds"]

_FAULTS = [
    *(Fault("kill", phase) for phase in PHASES for _ in range(24)),
    *(Fault("eio", call) for call in ("write", "fsync", "link", "read") for _ in range(5)),
    *(Fault("torn", "part") for _ in range(16)),
    *(Fault("missing", "part") for _ in range(16)),
    *(Fault("landed", "commit") for _ in range(20)),
    *(Fault("refused", "commit") for _ in range(12)),
    *(Fault("zombie", phase) for phase in ("plan", "write", "read-back", "commit") for _ in range(9)),
    *(Fault("skew", phase) for phase in ("write", "commit") for _ in range(8)),
    *(Fault("compact", moment) for moment in ("commit", "log-quarantine", "log-table") for _ in range(6)),
    *(Fault("vacuum", moment) for moment in ("read", "commit", "log-table") for _ in range(6)),
    *(Fault("source", moment) for moment in ("save-plan", "read", "commit") for _ in range(5)),
]
_FULL_DISK = [Fault("enospc", phase) for phase in ("plan", "write", "read-back", "commit") for _ in range(6)]
_REMOTE = [
    *(Fault("kill", phase) for phase in PHASES for _ in range(2)),
    *(Fault(kind, where) for kind, where in (("landed", "commit"), ("torn", "part"), ("missing", "part"))),
    *(Fault("zombie", phase) for phase in ("write", "commit", "read-back")),
    *(Fault("eio", call) for call in ("put", "get", "list", "entry") for _ in range(2)),
    *(Fault(kind, "log-table") for kind in ("compact", "vacuum")),
]
PLACES = ("local", "full", "s3")
_IN_A_WORLD = 8
_AT_ONCE = 2


@dataclass(frozen=True, slots=True)
class WorldPlan:
    """Plan of one world.

    Attributes:
        number: of the world; ``seed/number`` seeds its random choices.
        place: one of ``PLACES``; ``full`` is a small tmpfs.
        buckets: of the table; with one bucket, large increments have several cells per bucket.
        flaky: documents fail in some attempts and not in others.
        faults: in their order.
    """

    number: int
    place: str
    buckets: int
    flaky: bool
    faults: tuple[Fault, ...]


def plan_worlds(seed: int, share: int = 1) -> list[WorldPlan]:
    """Distribute the faults over worlds.

    Args:
        seed: of order and place.
        share: one of this many faults is used.
    """
    rng = random.Random(f"worlds {seed}")
    worlds: list[WorldPlan] = []
    for place, whole in zip(PLACES, (_FAULTS, _FULL_DISK, _REMOTE), strict=True):
        faults = whole[rng.randrange(share) :: share] if share > 1 else list(whole)
        rng.shuffle(faults)
        for start in range(0, len(faults), _IN_A_WORLD):
            number = len(worlds)
            part = tuple(faults[start : start + _IN_A_WORLD])
            worlds.append(WorldPlan(number, place, rng.choice([1, 4]), rng.random() < 0.4, part))
    return worlds


def run_worlds(seed: int, worlds: list[WorldPlan], s3: dict[str, str]) -> Tally:
    """Run worlds, two at a time.

    Args:
        seed: of the corpus and of every world's choices.
        worlds: from ``plan_worlds``.
        s3: options of an S3 endpoint with the bucket ``lsr``.
    """
    tally = Tally()
    chain = make_chain(seed)
    with _stage() as (start, folder), ThreadPoolExecutor(_AT_ONCE) as pool:
        baseline = undisturbed(start, folder / "undisturbed", chain)
        for found in pool.map(partial(_run_world, seed, start, folder, chain, baseline, s3), worlds):
            tally.add(found)
    return tally


def _run_world(
    seed: int,
    start: Launcher,
    folder: Path,
    chain: SourceChain,
    baseline: tuple[Vectors, ...],
    s3: dict[str, str],
    plan: WorldPlan,
) -> Tally:
    rng = random.Random(f"world {seed}/{plan.number}")
    here = folder / f"world-{plan.number}"
    table, options = (
        (f"s3://lsr/faults-{seed}-{plan.number}/table", s3) if plan.place == "s3" else (str(here / "t"), {})
    )
    job, source = Job((), table, options, plan.buckets), folder / f"source-{plan.number}"
    if plan.place != "full":
        return World(start, source, job, chain, baseline, rng, flaky=plan.flaky).run(list(plan.faults))
    with small_disk(here) as disk:
        return World(start, source, job, chain, baseline, rng, flaky=plan.flaky, disk=disk).run(list(plan.faults))


@dataclass(frozen=True, slots=True)
class Resumed:
    """Cost of a kill in the middle of a run.

    Attributes:
        documents: of the corpus.
        largest_wave: documents of the largest wave.
        redone: number of documents encoded twice.
        findings: of the finished table.
    """

    documents: int
    largest_wave: int
    redone: int
    findings: Findings


def resume_at_half(seed: int) -> Resumed:
    """Kill an attempt while it writes the wave after half of the waves, and let another attempt finish."""
    rng = random.Random(f"resume {seed}")
    with _stage() as (start, folder):
        corpus = make_corpus(folder / "corpus", seed, documents=130)
        job = Job(corpus.paths, str(folder / "whole"), {})
        sizes = []
        with start.start(job) as attempt:
            wave = 1
            while attempt.until("after-commit", wave):
                sizes.append(attempt.encoded - sum(sizes))
                wave += 1
        expected = vectors(job)
        job = Job(corpus.paths, str(folder / "killed"), {})
        half = len(sizes) // 2
        with start.start(job) as attempt:
            attempt.until("after-commit", half)
            attempt.next_phase("write", rng.randint(2, 6))
            first = attempt.kill()
        second = start.run(job)
        findings = inspect(job, corpus, expected, finished=True)
        findings.note("lost", int(second.how != "done"), f"the second attempt did not finish: {second}")
        redone = first.encoded + second.encoded - len(corpus.documents)
        return Resumed(len(corpus.documents), max(sizes), redone, findings)


@contextmanager
def _stage() -> Iterator[tuple[Launcher, Path]]:
    with tempfile.TemporaryDirectory(prefix="lsr-faults-", ignore_cleanup_errors=True) as name, launcher() as start:
        yield start, Path(name)
