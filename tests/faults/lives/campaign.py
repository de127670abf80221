"""Many lives on two processes; a life that fails is repeated with fewer operations."""

import multiprocessing
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.faults.lives.life import LifeOutcome, live
from tests.faults.lives.script import LifeScript, draw, shorten
from tests.faults.oracle import FINDINGS, Findings

__all__ = ["LIVES_OF_A_SEED", "LivesTally", "run_life", "run_lives", "run_script"]

LIVES_OF_A_SEED = 1_000_000
_MEMORY = Path("/dev/shm")
_AT_ONCE = 2
_CHUNK = 10


@dataclass(slots=True)
class LivesTally:
    """Sums over lives.

    Attributes:
        lives: number of lives.
        findings: what was found; a sentence begins with the seed of its life.
        counts: what happened: nights, kills, refusals, builds by mode.
        failed: seeds of lives with a finding.
        shortened: scripts of the first lives that failed, as JSON, with fewer operations.
    """

    lives: int
    findings: Findings
    counts: Counter[str]
    failed: list[int]
    shortened: list[str]

    @property
    def refused_share(self) -> float:
        """Share of the nights that ended with a refusal."""
        return round(self.counts["refused"] / max(self.counts["nights"], 1), 4)


def run_life(script: LifeScript) -> LifeOutcome:
    """Carry out a script in a folder in memory, if there is one."""
    with _scratch() as folder:
        return live(script, folder)


def run_lives(seeds: Iterable[int], *, shorten_first: int = 3) -> LivesTally:
    """Live the lives of some seeds.

    Args:
        seeds: of lives.
        shorten_first: number of failed lives whose script is shortened.
    """
    tally = LivesTally(0, Findings(), Counter(), [], [])
    with ProcessPoolExecutor(_AT_ONCE, multiprocessing.get_context("spawn"), initializer=_quiet) as pool:
        for seed, outcome in pool.map(_of_seed, seeds, chunksize=_CHUNK):
            tally.lives += 1
            tally.counts += outcome.counts
            found = outcome.findings
            if not found.clean:
                tally.failed.append(seed)
                found.sentences = [f"life {seed}: {sentence}" for sentence in found.sentences]
                tally.findings.add(found)
        tally.shortened += pool.map(_shortened, tally.failed[:shorten_first])
    return tally


def run_script(text: str) -> LivesTally:
    """Live one life, given as JSON."""
    outcome = run_life(LifeScript.from_json(text))
    return LivesTally(1, outcome.findings, outcome.counts, [], [])


def _of_seed(seed: int) -> tuple[int, LifeOutcome]:
    return seed, run_life(draw(seed))


def _shortened(seed: int) -> str:
    script = draw(seed)
    kinds = _kinds(script)
    return shorten(script, lambda shorter: bool(_kinds(shorter) & kinds)).to_json()


def _kinds(script: LifeScript) -> set[str]:
    findings = run_life(script).findings
    return {kind for kind in FINDINGS if getattr(findings, kind)}


def _quiet() -> None:
    import logging

    logging.disable(logging.CRITICAL)


@contextmanager
def _scratch() -> Iterator[Path]:
    parent = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    folder = tempfile.mkdtemp(prefix="lsr-life-", dir=parent)
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
