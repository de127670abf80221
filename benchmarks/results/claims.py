"""Claims of a paper about two rows of a table, and the verdict of the runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.results.material import Material
from benchmarks.results.runs import Chain, Outcome
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
        why: analysis, printed where the direction does not come out.
    """

    text: str
    better: str
    worse: str
    collection: str = "tldr"
    level: tuple[int, int] = (0, 0)
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
    """A claim and what the runs say."""

    claim: Claim
    found: Comparison

    @property
    def word(self) -> str:
        """``shown``, ``not significant`` or ``not shown``."""
        if self.found.difference > 0 and self.found.p < SIGNIFICANT:
            return "shown"
        return "not significant" if self.found.difference > 0 else "not shown"


def verdict(claim: Claim, outcomes: Mapping[str, Sequence[Outcome]], material: Material) -> Verdict:
    """Compare two rows by query, seeds averaged; a row without seeds is compared with every seed of the other."""
    better, worse = outcomes[claim.better], outcomes[claim.worse]
    count = max(len(better), len(worse))
    ours, theirs = (
        [one.values(claim.collection, claim.level) for one in _repeated(row, count)] for row in (better, worse)
    )
    return Verdict(claim, compare(ours, theirs, material.groups))


def _repeated(row: Sequence[Outcome], count: int) -> list[Outcome]:
    return [row[number % len(row)] for number in range(count)]
