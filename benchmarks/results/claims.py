"""Claims of a paper about two rows of a table, and the verdict of the runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.results.material import Material
from benchmarks.results.runs import Chain, Outcome, key
from benchmarks.train.paired import Comparison, compare

SIGNIFICANT = 0.05


@dataclass(frozen=True, slots=True)
class Claim:
    """One direction.

    Attributes:
        text: what the paper, or this project, says.
        better: the row that should have the higher measure.
        worse: the other row.
        collection: of ``Material.collections``.
        level: pruning (qk, dk) at which the rows are compared.
        equal_flops: the better row is measured at the level with the most FLOPS that are not above those of the other
            row at ``level``, so its cost is equal or lower.
        why: analysis, printed where the direction does not come out.
    """

    text: str
    better: str
    worse: str
    collection: str = "tldr"
    level: tuple[int, int] = (0, 0)
    equal_flops: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True)
class Family:
    """The rows and claims of one paper.

    Attributes:
        name: on the command line.
        title: heading.
        text: what was done and what differs from the paper.
        rows: label to chain.
        claims: directions.
        fixed: labels of rows that no seed changes.
    """

    name: str
    title: str
    text: str
    rows: Mapping[str, Chain]
    claims: Sequence[Claim]
    fixed: frozenset[str] = field(default=frozenset())

    def seeds(self, label: str, seeds: int) -> range:
        """The seeds of a row."""
        return range(1 if label in self.fixed else seeds)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A claim and what the runs say; ``note`` has the levels of a comparison at equal FLOPS."""

    claim: Claim
    found: Comparison
    note: str = ""

    @property
    def word(self) -> str:
        """``shown``, ``not significant`` or ``not shown``."""
        if self.found.difference > 0 and self.found.p < SIGNIFICANT:
            return "shown"
        return "not significant" if self.found.difference > 0 else "not shown"


def verdict(claim: Claim, outcomes: Mapping[str, Sequence[Outcome]], material: Material) -> Verdict:
    """Compare two rows by query, seeds averaged; a row without seeds is compared with every seed of the other."""
    better, worse = outcomes[claim.better], outcomes[claim.worse]
    level, note = claim.level, ""
    if claim.equal_flops:
        limit = _flops(worse, claim.collection, claim.level)
        level = _cheaper_level(better, claim.collection, limit)
        note = f" (at {level} with {_flops(better, claim.collection, level):.3g} FLOPS against {limit:.3g})"
    count = max(len(better), len(worse))
    ours = [one.values(claim.collection, level) for one in _repeated(better, count)]
    theirs = [one.values(claim.collection, claim.level) for one in _repeated(worse, count)]
    return Verdict(claim, compare(ours, theirs, material.groups), note)


def _flops(row: Sequence[Outcome], collection: str, level: tuple[int, int]) -> float:
    return float(np.mean([one.cost[key(collection, level, 0.0)]["flops"] for one in row]))


def _cheaper_level(row: Sequence[Outcome], collection: str, limit: float) -> tuple[int, int]:
    """The measured level with the most FLOPS up to a limit; the cheapest if all are above it."""
    levels = {(int(qk), int(dk)) for name, qk, dk, _ in map(str.split, row[0].cost) if name == collection}
    costs = {level: _flops(row, collection, level) for level in levels}
    allowed = [level for level in levels if costs[level] <= limit] or [min(levels, key=costs.__getitem__)]
    return max(allowed, key=costs.__getitem__)


def _repeated(row: Sequence[Outcome], count: int) -> list[Outcome]:
    return [row[number % len(row)] for number in range(count)]
