"""Comparison of several systems with a baseline on the same queries: paired tests per measure, with correction."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lsr_prod.evaluation.significance import (
    CORRECTIONS,
    bootstrap_intervals,
    paired_randomization,
    paired_t,
)

ByQuery = Mapping[str, npt.NDArray[np.float64]]
_EQUAL = 1e-12  # differences of a query below it are a tie


@dataclass(frozen=True, slots=True)
class SignificanceOptions:
    """Options of the tests.

    Attributes:
        significance: level; intervals hold 1 minus this share.
        correction: ``holm``, ``bonferroni`` or ``none``.
        resamples: samples of the randomization test and of the bootstrap.
        seed: seed of these samples.
    """

    significance: float = 0.05
    correction: str = "holm"
    resamples: int = 10_000
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Comparison:
    """One system against the baseline in one measure.

    Attributes:
        measure: name of the measure.
        system: name of the system.
        baseline: name of the baseline.
        difference: mean over the queries of system minus baseline.
        low: lower end of the bootstrap interval of the difference.
        high: upper end.
        wins: queries in which the system is better.
        losses: queries in which the baseline is better.
        ties: queries in which both are equal.
        p_t: two-sided p value of the paired t test.
        p_randomization: two-sided p value of the paired randomization test.
        p_adjusted: ``p_randomization`` corrected for the number of systems compared in this measure.
        significant: whether ``p_adjusted`` is at most the level.
    """

    measure: str
    system: str
    baseline: str
    difference: float
    low: float
    high: float
    wins: int
    losses: int
    ties: int
    p_t: float
    p_randomization: float
    p_adjusted: float
    significant: bool


def mean_intervals(by_query: ByQuery, tests: SignificanceOptions) -> dict[str, tuple[float, float]]:
    """Return the bootstrap interval of the mean of every measure."""
    if not by_query:
        return {}
    ends = bootstrap_intervals(
        np.stack(list(by_query.values()), axis=1),
        level=1 - tests.significance,
        resamples=tests.resamples,
        seed=tests.seed,
    )
    return {measure: (low, high) for measure, (low, high) in zip(by_query, ends.tolist(), strict=True)}


def compare_with_baseline(
    systems: Mapping[str, ByQuery], baseline: str, tests: SignificanceOptions
) -> list[Comparison]:
    """Compare every other system with the baseline in every measure.

    The p values of one measure are one family: they are corrected for the number of systems. Measures are not a family,
    because they describe the same rankings.

    Returns:
        One comparison per measure and system, systems varying fastest.
    """
    others = [name for name in systems if name != baseline]
    measures = list(systems[baseline])
    pairs = [(measure, name) for measure in measures for name in others]
    if not pairs:
        return []
    differences = np.stack([systems[name][m] - systems[baseline][m] for m, name in pairs], axis=1)  # [Q, T]
    differences[np.abs(differences) < _EQUAL] = 0.0
    ends = bootstrap_intervals(
        differences, level=1 - tests.significance, resamples=tests.resamples, seed=tests.seed
    ).tolist()
    p_t = paired_t(differences).tolist()
    p = paired_randomization(differences, resamples=tests.resamples, seed=tests.seed)
    adjusted = _correct(p, len(measures), tests.correction)
    return [
        Comparison(
            measure=measure,
            system=name,
            baseline=baseline,
            difference=float(differences[:, t].mean()),
            low=ends[t][0],
            high=ends[t][1],
            wins=int((differences[:, t] > 0).sum()),
            losses=int((differences[:, t] < 0).sum()),
            ties=int((differences[:, t] == 0).sum()),
            p_t=p_t[t],
            p_randomization=float(p[t]),
            p_adjusted=adjusted[t],
            significant=adjusted[t] <= tests.significance,
        )
        for t, (measure, name) in enumerate(pairs)
    ]


def _correct(p: npt.NDArray[np.float64], families: int, correction: str) -> Sequence[float]:
    """Return adjusted p values of consecutive families of equal size."""
    return [value for family in np.split(p, families) for value in CORRECTIONS[correction](family).tolist()]
