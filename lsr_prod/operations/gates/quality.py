"""Quality of a version against the current one on judged queries, with a paired randomization test."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lsr_prod.evaluation.collection import read_judged
from lsr_prod.operations.canary import Judge, compare_rankings
from lsr_prod.operations.gates.versions import Versions

_K = 100  # hits per query
_SAMPLES = 10_000


@dataclass(frozen=True, slots=True)
class QualityChange:
    """A measure of two versions.

    Attributes:
        now: mean of the candidate.
        before: mean of the current version.
        p: probability of a loss as large as this one, or larger, if the versions were equally good.
        queries: number of judged queries.
    """

    now: float
    before: float
    p: float
    queries: int


def compare_quality(versions: Versions) -> QualityChange:
    """Answer the judged queries with both versions, and compare the measure of the settings."""
    limits, current = versions.limits, versions.current
    assert current is not None
    assert limits.judged_queries is not None
    assert limits.judged_qrels is not None
    judged = read_judged(limits.judged_queries, limits.judged_qrels, versions.options)
    judge = Judge(limits.measure, judged.qrels, field="gates.measure")
    texts = list(judged.queries.values())
    answers = (versions.answers(each, texts, _K) for each in (current, versions.searcher))
    changes = judge.judge(list(map(compare_rankings, judged.queries, texts, *answers)))
    before, now = (np.array([getattr(each, name) for each in changes], float) for name in ("value_a", "value_b"))
    return QualityChange(float(now.mean()), float(before.mean()), one_sided_p(before - now), len(now))


def one_sided_p(losses: npt.NDArray[np.float64]) -> float:
    """Return the p value of a paired randomization test for a positive mean.

    The signs of the differences are drawn at random, with a fixed seed; the observed signs are one of the samples.
    """
    rng = np.random.default_rng(0)
    observed = losses.mean()
    changed = losses[losses != 0]
    if not len(changed):
        return 1.0
    at_least = 1
    for _ in range(_SAMPLES):
        signs = rng.integers(0, 2, len(changed)) * 2 - 1
        at_least += (changed * signs).sum() / len(losses) >= observed - 1e-12
    return float(at_least / (_SAMPLES + 1))
