"""Quality of a version against the current one on judged queries, with a paired randomization test."""

from dataclasses import dataclass
from typing import Any

import ir_measures
import numpy as np
import numpy.typing as npt

from lsr_prod.errors import ConfigError
from lsr_prod.evaluation.collection import JudgedQueries, read_judged
from lsr_prod.operations.gates.versions import Versions
from lsr_prod.search import Searcher

__all__ = ["QualityChange", "compare_quality", "one_sided_p"]

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
    """Answer the judged queries with both versions, and compare the measure of the settings.

    Raises:
        ConfigError: the measure is unknown.
        SourceError: queries or judgments cannot be read.
    """
    limits, current = versions.limits, versions.current
    assert current is not None
    assert limits.judged_queries is not None
    assert limits.judged_qrels is not None
    try:
        measure = ir_measures.parse_measure(limits.measure)
    except (NameError, ValueError, SyntaxError) as error:
        raise ConfigError(
            "gates.measure", f"{limits.measure!r} is unknown", "use a name of ir_measures, e.g. nDCG@10"
        ) from error
    judged = read_judged(limits.judged_queries, limits.judged_qrels, versions.options)
    now, before = (_values(versions, each, judged, measure) for each in (versions.searcher, current))
    return QualityChange(float(now.mean()), float(before.mean()), one_sided_p(before - now), len(now))


def one_sided_p(losses: npt.NDArray[np.float64]) -> float:
    """Return the p value of a paired randomization test for a positive mean.

    The signs of the differences are drawn at random, with a fixed seed; the observed signs are one of the samples.

    Args:
        losses: difference per query, [queries].
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


def _values(versions: Versions, searcher: Searcher, judged: JudgedQueries, measure: Any) -> npt.NDArray[np.float64]:
    """Return the measure per judged query, in the order of the queries."""
    ids = list(judged.queries)
    rankings = versions.answers(searcher, [judged.queries[query_id] for query_id in ids], _K)
    run = [
        ir_measures.ScoredDoc(query_id, doc_id, score)
        for query_id, ranking in zip(ids, rankings, strict=True)
        for doc_id, score in ranking
    ]
    found = {one.query_id: one.value for one in ir_measures.iter_calc([measure], judged.qrels, run)}
    return np.array([found.get(query_id, 0.0) for query_id in ids])
