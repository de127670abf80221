"""The mutation test: run every mutant through the scenario that must detect it."""

import shutil
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.faults.attempts import ROOT, launcher
from tests.faults.chain import SourceChain
from tests.faults.mutant import Mutant
from tests.faults.oracle import Findings, Vectors
from tests.faults.protocol import Job
from tests.faults.scenarios import SCENARIOS
from tests.faults.scene import Detected, Scene, undisturbed

__all__ = ["Verdict", "mutated", "run_mutants", "run_scenarios"]

_AT_ONCE = 2
_BUCKETS = (4, 1)
_MISTAKES = ("NameError", "UnboundLocalError", "ImportError", "AttributeError", "TypeError", "SyntaxError")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome of a mutant.

    Attributes:
        mutant: the change.
        found: what the oracle found in the tables; empty: the mutant was missed.
        crash: an error that shows a mistake in the mutant itself and not in the protocol; else empty.
        seconds: duration.
    """

    mutant: Mutant
    found: tuple[str, ...]
    crash: str
    seconds: float

    @property
    def caught(self) -> bool:
        """The oracle found lost, doubled, truncated or wrong rows."""
        return bool(self.found) and not self.crash


@contextmanager
def mutated(folder: Path, mutant: Mutant) -> Iterator[Path]:
    """Copy the package with the mutant; yield the folder to run it in.

    Raises:
        ValueError: a text of the mutant does not occur exactly once in its file.
    """
    try:
        shutil.copytree(ROOT / "lsr_prod", folder / "lsr_prod")
        (folder / "tests").symlink_to(ROOT / "tests")
        path = folder / "lsr_prod" / mutant.file
        text = path.read_text()
        for old, new in mutant.edits:
            if text.count(old) != 1:
                raise ValueError(f"mutant {mutant.name!r}: {mutant.file} has {text.count(old)} times {old!r}, not once")
            text = text.replace(old, new)
        path.write_text(text)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_mutants(folder: Path, chain: SourceChain, mutants: Iterable[Mutant]) -> Iterator[Verdict]:
    """Run mutants, two at a time, and yield the outcomes in their order.

    Args:
        folder: of tables and copies of the package.
        chain: states of the source.
        mutants: the changes.
    """
    with launcher() as start:
        baseline = undisturbed(start, folder / "undisturbed", chain)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        yield from pool.map(partial(_run_mutant, folder, chain, baseline), mutants)


def _run_mutant(folder: Path, chain: SourceChain, baseline: tuple[Vectors, ...], mutant: Mutant) -> Verdict:
    began = time.monotonic()
    here = folder / mutant.name.replace(" ", "-")
    with mutated(here / "code", mutant) as code, launcher(code) as start:
        scene = Scene(start, here / "source", chain, baseline, _job(here, mutant.buckets), stop=True)
        with suppress(Detected):
            SCENARIOS[mutant.scenario](scene)
    shutil.rmtree(here, ignore_errors=True)
    crash = next((crash for crash in scene.crashes if crash.startswith(_MISTAKES)), "")
    return Verdict(mutant, tuple(scene.findings.sentences), crash, time.monotonic() - began)


def _job(folder: Path, buckets: int) -> Job:
    return Job((), str(folder / "table"), {}, buckets)


def run_scenarios(folder: Path, chain: SourceChain, names: Iterable[str] = SCENARIOS) -> tuple[int, Findings]:
    """Run scenarios of the code as it is, with several buckets and with one.

    Args:
        folder: of the tables.
        chain: states of the source.
        names: of the scenarios.

    Returns:
        Number of scenarios, and what the oracle found.
    """
    findings = Findings()
    with launcher() as start, ThreadPoolExecutor(_AT_ONCE) as pool:
        baseline = undisturbed(start, folder / "undisturbed", chain)

        def run(name: str, buckets: int) -> Scene:
            here = folder / f"{name}-{buckets}"
            scene = Scene(start, here / "source", chain, baseline, _job(here, buckets))
            SCENARIOS[name](scene)
            return scene

        running = [(name, pool.submit(run, name, buckets)) for name in names for buckets in _BUCKETS]
        for name, future in running:
            scene = future.result()
            scene.findings.note("wrong", len(scene.crashes), f"an attempt ended with {scene.crashes[:1]}")
            scene.findings.sentences = [f"{name}: {sentence}" for sentence in scene.findings.sentences]
            findings.add(scene.findings)
    return len(running), findings
