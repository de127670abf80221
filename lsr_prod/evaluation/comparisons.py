"""Comparison of several systems with a baseline on the same queries: paired tests, corrections, bootstrap intervals.

Paired tests, corrections and bootstraps take one column per comparison, so that every system and measure of an
evaluation is resampled with the same draws. A seed makes them deterministic.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr

Floats = np.typing.NDArray[np.float64]
_CELLS = 4_000_000  # random numbers at once
_TIE = 1e-10  # relative difference of two sums below which they count as equal
ByQuery = Mapping[str, np.typing.NDArray[np.float64]]
_EQUAL = 1e-12  # differences of a query below it are a tie


def paired_t(differences: Floats) -> Floats:
    """Return the two-sided p values of paired t tests.

    Returns:
        p values [T]. 1 for one query and for differences that are all 0; 0 for other differences that are all equal.
    """
    n = len(differences)
    mean = differences.mean(axis=0)
    if n < 2:
        return np.ones(differences.shape[1])
    error = differences.std(axis=0, ddof=1) / np.sqrt(n)
    t = np.where(mean == 0, 0.0, np.inf)
    np.divide(np.abs(mean), error, out=t, where=error > 0)
    p: Floats = 2 * stdtr(n - 1, -t)  # scipy.stats takes a second to import
    return p


def paired_randomization(
    differences: Floats, *, resamples: int = 10_000, seed: int = 0, one_sided: bool = False
) -> Floats:
    """Return the p values of paired randomization (permutation) tests of the mean, two-sided or for a positive mean.

    If two systems were equally good, each difference could have either sign. The p value is the share of sign patterns
    whose mean is at least as far from 0, or as high, as the observed one. Queries without a difference do not change a
    mean. All patterns are enumerated if there are at most ``resamples``; otherwise patterns are drawn, and the observed
    pattern counts as one of them, so that p is never 0 (Smucker, Allan, Carterette: A comparison of statistical
    significance tests for information retrieval evaluation, CIKM 2007).

    Returns:
        p values [T].
    """
    distance: Callable[[Floats], Floats] = np.positive if one_sided else np.abs
    least = distance(differences.sum(axis=0)) - _TIE * np.abs(differences).sum(axis=0)
    rng = np.random.default_rng(seed)
    as_far = np.zeros(differences.shape[1], np.int64)
    for count in _blocks(resamples, len(differences)):
        signs = rng.integers(0, 2, (count, len(differences)), np.int8).astype(np.float64) * 2 - 1
        as_far += (distance(signs @ differences) >= least).sum(axis=0)
    p = (as_far + 1) / (resamples + 1)
    for column in np.flatnonzero(np.count_nonzero(differences, axis=0) <= np.log2(resamples)):
        changed = differences[differences[:, column] != 0, column]
        p[column] = np.mean(distance(_all_signs(len(changed)) @ changed) >= least[column])
    return p


def holm(p: Floats) -> Floats:
    """Return p values adjusted for their number by the step-down method of Holm (1979)."""
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted


def bonferroni(p: Floats) -> Floats:
    """Return p values multiplied by their number, at most 1."""
    return np.minimum(p * len(p), 1.0)


CORRECTIONS: dict[str, Callable[[Floats], Floats]] = {"holm": holm, "bonferroni": bonferroni, "none": np.copy}
"""Corrections by the name of the setting."""


def bootstrap_means(values: Floats, *, resamples: int = 10_000, seed: int = 0, sizes: Floats | None = None) -> Floats:
    """Return means of resamples of the rows, drawn with replacement.

    Returns:
        Means [R, T].
    """
    rows = len(values)
    rng = np.random.default_rng(seed)
    means = []
    for count in _blocks(resamples, rows):
        drawn = rng.integers(0, rows, (count, rows)) + rows * np.arange(count)[:, None]
        times = np.bincount(drawn.ravel(), minlength=count * rows).reshape(count, rows).astype(np.float64)
        means.append((times @ values) / (rows if sizes is None else (times @ sizes)[:, None]))
    return np.concatenate(means)


def bootstrap_intervals(values: Floats, *, level: float = 0.95, resamples: int = 10_000, seed: int = 0) -> Floats:
    """Return percentile intervals of the means over queries (Efron's percentile method).

    Returns:
        Lower and upper ends [T, 2].
    """
    means = bootstrap_means(values, resamples=resamples, seed=seed)
    ends: Floats = np.quantile(means, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return ends.T


def _blocks(total: int, width: int) -> Iterator[int]:
    """Yield numbers of rows that add up to ``total``, each block of at most _CELLS cells."""
    rows = max(1, _CELLS // max(1, width))
    for start in range(0, total, rows):
        yield min(rows, total - start)


def _all_signs(n: int) -> Floats:
    """Return all patterns of n signs, [2^n, n]."""
    return ((np.arange(1 << n)[:, None] >> np.arange(n)) & 1).astype(np.float64) * 2 - 1


@dataclass(frozen=True, slots=True)
class SignificanceOptions:
    """Options of the tests."""

    significance: float = 0.05  # level; intervals hold 1 minus this share
    correction: str = "holm"  # ``holm``, ``bonferroni`` or ``none``
    resamples: int = 10_000  # samples of the randomization test and of the bootstrap
    seed: int = 0  # seed of these samples

    def intervals(self, values: Floats) -> list[list[float]]:
        """Return lower and upper end of the interval of the mean of each column."""
        ends: list[list[float]] = bootstrap_intervals(
            values, level=1 - self.significance, resamples=self.resamples, seed=self.seed
        ).tolist()
        return ends


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
    ends = tests.intervals(np.stack(list(by_query.values()), axis=1))
    return {measure: (low, high) for measure, (low, high) in zip(by_query, ends, strict=True)}


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
    ends = tests.intervals(differences)
    p_t = paired_t(differences).tolist()
    p = paired_randomization(differences, resamples=tests.resamples, seed=tests.seed)
    correct = CORRECTIONS[tests.correction]  # of the systems of one measure
    adjusted = [value for family in np.split(p, len(measures)) for value in correct(family).tolist()]
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
