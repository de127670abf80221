"""Report of a tuner: the choice, its cross-validated value, the measured candidates, and the patch of a deployment."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lsr_prod.evaluation.patches import Patch


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to search."""

    threshold: float  # overlap threshold
    hybrid_weight: float | None  # weight of the words next to the weight 1 of the encoder's terms; None: no words

    def __str__(self) -> str:
        """Return the candidate in words."""
        words = "no words" if self.hybrid_weight is None else f"words {self.hybrid_weight:.4g}"
        return f"threshold {self.threshold:g}, {words}"


def grid(lowest: float, highest: float, steps_per_octave: int) -> list[float]:
    """Return rising weights from ``lowest`` to ``highest``, at equal ratios of at most 2^(1/steps)."""
    octaves = math.log2(highest / lowest)
    steps = math.ceil(octaves * steps_per_octave - 1e-9)
    if steps == 0:
        return [lowest]
    return [lowest * 2 ** (octaves * step / steps) for step in range(steps)] + [highest]


def preference(candidate: Candidate) -> Sequence[float]:
    """Return the order of candidates with equal values, the smallest first: the cheaper search, then even weights."""
    weight = candidate.hybrid_weight
    return (weight is not None, -candidate.threshold, 0.0 if weight is None else abs(math.log(weight)))


@dataclass(frozen=True, slots=True)
class TuneReport:
    """Result of a tuner.

    Attributes:
        measure: the measure.
        queries: number of queries.
        chosen: the best candidate on all queries.
        value: its mean; chosen and measured on the same queries, so it is slightly too high.
        cross_validated: mean over the queries, each measured by a choice that did not see it.
        low: lower end of the 95 % bootstrap interval of ``cross_validated``.
        high: upper end.
        no_words: mean of the best threshold without words.
        bm25: mean of BM25 alone.
        choices: the choice of every fold.
        curve: all measured candidates with their means, by threshold and weight.
        patch: section -> field -> value: what a deployment has to change.
        search: keyword arguments of ``Searcher.search``; ``hybrid`` holds those of ``Hybrid``.
    """

    measure: str
    queries: int
    chosen: Candidate
    value: float
    cross_validated: float
    low: float
    high: float
    no_words: float
    bm25: float
    choices: Sequence[Candidate]
    curve: Sequence[tuple[Candidate, float]]
    patch: Patch
    search: Mapping[str, Any]

    @property
    def sentence(self) -> str:
        """The choice in one sentence."""
        return (
            f"{self.chosen}: {self.measure} {self.value:.4f} on {self.queries} queries, cross-validated "
            f"{self.cross_validated:.4f} (95 % interval {self.low:.4f} to {self.high:.4f}); without words "
            f"{self.no_words:.4f}, BM25 alone {self.bm25:.4f}"
        )

    def result(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            "measure": self.measure,
            "queries": self.queries,
            "threshold": self.chosen.threshold,
            "hybrid_weight": self.chosen.hybrid_weight,
            "value": self.value,
            "cross_validated": self.cross_validated,
            "low": self.low,
            "high": self.high,
            "no_words": self.no_words,
            "bm25": self.bm25,
            "measured": len(self.curve),
            "folds": [_row(choice) for choice in self.choices],
            "curve": [_row(candidate) | {"value": value} for candidate, value in self.curve],
            "patch": {section: dict(fields) for section, fields in self.patch.items()},
            "search": dict(self.search),
            "sentence": self.sentence,
        }


def _row(candidate: Candidate) -> dict[str, Any]:
    return {"threshold": candidate.threshold, "hybrid_weight": candidate.hybrid_weight}
