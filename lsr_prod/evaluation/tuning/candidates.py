"""Candidates of a tuner: pairs of an overlap threshold and a weight of the words."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to search.

    Attributes:
        threshold: overlap threshold.
        hybrid_weight: weight of the words next to the weight 1 of the encoder's terms; None: no words.
    """

    threshold: float
    hybrid_weight: float | None

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
