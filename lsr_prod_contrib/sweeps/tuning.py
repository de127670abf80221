"""Tune the hybrid weight and the overlap threshold of a published index.

Every candidate is measured by ``Searcher`` itself, so the chosen value is that of the product. Queries are encoded
once.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lsr_prod.config import Deployment, TuneSettings
from lsr_prod.config.evaluate import Bm25System, HybridSystem, SparseSystem, SystemSettings
from lsr_prod.errors import ConfigError
from lsr_prod.evaluation.collection import JudgedQueries, check_relevant, read_judged, require_files
from lsr_prod.evaluation.comparisons import bootstrap_intervals
from lsr_prod.evaluation.measures import depth_of, measure, parse_measures
from lsr_prod.evaluation.systems import EncodedQuery, open_system
from lsr_prod.logs import get_log
from lsr_prod.search import Searcher
from lsr_prod.storage import is_remote, require_exists
from lsr_prod_contrib.sweeps.patches import Patch, evaluate_patch, limit_patch, search_options, write_report

log = get_log("lsr_prod.tuning")

_RRF_DEPTH = 100
_PROGRESS_S = 10.0
_COARSE = 8  # intervals of the first pass
_BEST = 3  # weights around which a pass refines
Floats = npt.NDArray[np.float64]


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
            **asdict(self.chosen),
            "value": self.value,
            "cross_validated": self.cross_validated,
            "low": self.low,
            "high": self.high,
            "no_words": self.no_words,
            "bm25": self.bm25,
            "measured": len(self.curve),
            "folds": [asdict(choice) for choice in self.choices],
            "curve": [asdict(candidate) | {"value": value} for candidate, value in self.curve],
            "patch": {section: dict(fields) for section, fields in self.patch.items()},
            "search": dict(self.search),
            "sentence": self.sentence,
        }


class CandidateValues:
    """Measures candidates on an index, each once.

    Attributes:
        measured: values of every query by candidate, float64 [Q].
        queries: number of queries.
    """

    def __init__(self, searcher: Searcher, judged: JudgedQueries, settings: TuneSettings) -> None:
        """Encode the queries."""
        self.measured: dict[Candidate, Floats] = {}
        self.queries = len(judged.queries)
        self._searcher, self._judged, self._settings = searcher, judged, settings
        self._measures = parse_measures("tune.measure", [settings.measure])
        vectors = searcher.encode(list(judged.queries.values()))
        self._encoded = [
            EncodedQuery(query_id, text, vector, 0.0)
            for (query_id, text), vector in zip(judged.queries.items(), vectors, strict=True)
        ]
        self._began = self._logged = time.monotonic()

    def __call__(self, candidate: Candidate) -> Floats:
        """Return the value of every query, float64 [Q]."""
        if candidate not in self.measured:
            self.measured[candidate] = self._values(self._system(candidate), self._settings.threads)
            self._log()
        return self.measured[candidate]

    @property
    def depth(self) -> int | None:
        """Length of the lists of reciprocal rank fusion; None: scores are added."""
        return max(_RRF_DEPTH, depth_of(self._measures)) if self._settings.fusion == "rrf" else None

    def bm25(self) -> Floats:
        """Return the value of every query for BM25 alone, float64 [Q]."""
        return self._values(Bm25System(kind="bm25"), 1)

    def _system(self, candidate: Candidate) -> SystemSettings:
        """Return the system of an evaluation that searches as a candidate does."""
        settings, threshold, name = self._settings, candidate.threshold, "candidate"
        if candidate.hybrid_weight is None:
            return SparseSystem(kind="sparse", name=name, overlap_threshold=threshold, qk=settings.qk)
        return HybridSystem(
            kind="hybrid",
            name=name,
            fusion=settings.fusion,
            words=candidate.hybrid_weight,
            depth=self.depth,
            overlap_threshold=threshold,
            qk=settings.qk,
        )

    def _values(self, system: SystemSettings, threads: int) -> Floats:
        depth = depth_of(self._measures)
        opened = open_system(system, self._searcher, k=depth, query_ids=list(self._judged.queries))
        found = measure(opened, self._encoded, self._judged.qrels, self._measures, threads=threads)
        return found.by_query[self._settings.measure]

    def _log(self) -> None:
        now = time.monotonic()
        if now - self._logged >= _PROGRESS_S:
            self._logged = now
            fields = {"candidates": len(self.measured), "seconds": round(now - self._began, 1)}
            log.info("measured", extra={"fields": fields})


def tune_index(deployment: Deployment) -> TuneReport:
    """Choose the hybrid weight and the overlap threshold of the section ``tune``.

    Args:
        deployment: the sections ``tune`` and ``storage`` are used; the patch changes the sections ``index`` and
            ``evaluate`` that are given, or both if none is.

    Raises:
        ConfigError: a file does not exist, the measure is unknown, the index has no words, or there are fewer queries
            than folds; nothing was written.
        SourceError: queries or judgments cannot be read, or no relevant document is in the index.
    """
    settings, options = deployment.tune, deployment.storage.options
    assert settings is not None
    judged = _read(settings, options)
    with Searcher.open(settings.index, storage_options=options) as searcher:
        if searcher.snapshot.version.average_length is None:
            raise ConfigError(
                "tune.index", f"{settings.index} has no postings of words", "build the index with index.bm25: true"
            )
        check_relevant(judged.qrels, settings.qrels, searcher.snapshot.place)
        report = _tune(deployment, settings, CandidateValues(searcher, judged, settings))
    if settings.output is not None:
        result = report.result()
        write_report(settings.output, "tune.json", result, result, options)
    return report


def _tune(deployment: Deployment, settings: TuneSettings, values: CandidateValues) -> TuneReport:
    weights = grid(settings.lowest_weight, settings.highest_weight, settings.steps_per_octave)

    def choose(queries: npt.NDArray[np.bool_]) -> Candidate:
        return best_candidate(
            lambda one: float(values(one)[queries].mean()),
            settings.thresholds,
            weights,
            exhaustive=settings.search == "exhaustive",
        )

    choose(np.ones(values.queries, np.bool_))
    held_out, choices = cross_validate(choose, values, make_folds(values.queries, settings.folds, settings.seed))
    # The folds measure further candidates, and one of them may be the best on all queries.
    chosen = min(values.measured, key=lambda one: (-float(values(one).mean()), *preference(one)))
    ((low, high),) = bootstrap_intervals(held_out[:, None], seed=settings.seed).tolist()
    search = search_options(
        qk=settings.qk, threshold=chosen.threshold, hybrid_weight=chosen.hybrid_weight, depth=values.depth
    )
    patch: dict[str, dict[str, Any]] = {"evaluate": evaluate_patch(deployment, search)}
    if chosen.hybrid_weight is not None:
        patch["index"] = {"bm25": True}
    return TuneReport(
        measure=settings.measure,
        queries=values.queries,
        chosen=chosen,
        value=float(values(chosen).mean()),
        cross_validated=float(held_out.mean()),
        low=low,
        high=high,
        no_words=max(float(values(Candidate(threshold, None)).mean()) for threshold in settings.thresholds),
        bm25=float(values.bm25().mean()),
        choices=choices,
        curve=[(one, float(values(one).mean())) for one in sorted(values.measured, key=_order)],
        patch=limit_patch(patch, deployment),
        search=search,
    )


def _read(settings: TuneSettings, options: Mapping[str, str]) -> JudgedQueries:
    require_files({"tune.queries": settings.queries, "tune.qrels": settings.qrels}, options)
    if not is_remote(settings.index):
        require_exists("tune.index", settings.index)
    parse_measures("tune.measure", [settings.measure])
    judged = read_judged(settings.queries, settings.qrels, options)
    if settings.max_queries is not None:
        kept = dict(list(judged.queries.items())[: settings.max_queries])
        judged = JudgedQueries(kept, [qrel for qrel in judged.qrels if qrel.query_id in kept])
    if len(judged.queries) < settings.folds:
        raise ConfigError(
            "tune.folds",
            f"{settings.folds} folds of {len(judged.queries)} judged queries are not possible",
            "give fewer folds or more queries",
        )
    return judged


def _order(candidate: Candidate) -> tuple[float, float]:
    return candidate.threshold, candidate.hybrid_weight or 0.0


def make_folds(queries: int, folds: int, seed: int) -> npt.NDArray[np.int64]:
    """Return int64 [Q]: the fold of every query; sizes differ by one at most, and the seed draws the queries."""
    assigned = np.arange(queries, dtype=np.int64) % folds
    np.random.default_rng(seed).shuffle(assigned)
    return assigned


def cross_validate(
    choose: Callable[[npt.NDArray[np.bool_]], Any], values: Callable[[Any], Floats], folds: npt.NDArray[np.int64]
) -> tuple[Floats, list[Any]]:
    """Choose on all folds but one, and measure the choice on the one that was left out.

    Returns:
        float64 [Q], the value of every query by a choice that did not see it; and the choice of every fold.
    """
    held_out, choices = np.zeros(len(folds)), []
    for fold in range(int(folds.max()) + 1):
        choices.append(choose(folds != fold))
        held_out[folds == fold] = values(choices[-1])[folds == fold]
    return held_out, choices


def best_candidate(
    value: Callable[[Candidate], float], thresholds: Sequence[float], weights: Sequence[float], *, exhaustive: bool
) -> Candidate:
    """Return the candidate with the highest value; of equal ones the first by ``preference``.

    For every threshold, a first pass measures no words and 9 weights at equal distances on the grid; each further pass
    halves the distance around the 3 best weights so far. The mean of a rank measure over many queries varies little
    between neighboring weights, so a maximum that all passes miss is hardly higher than the one they find.
    """
    found: list[Candidate] = []
    for threshold in dict.fromkeys(thresholds):
        found.append(Candidate(threshold, None))
        row = [Candidate(threshold, weight) for weight in weights]
        found += row if exhaustive else _refine(value, row)
    return min(found, key=lambda one: (-value(one), *preference(one)))


def _refine(value: Callable[[Candidate], float], row: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates of one threshold that were measured."""
    last, distance = len(row) - 1, 1
    while distance * _COARSE < last:
        distance *= 2
    places = {*range(0, last, distance), last}
    while distance > 1:
        distance //= 2
        best = sorted(places, key=lambda place: (-value(row[place]), *preference(row[place])))[:_BEST]
        near = {place + step for place in best for step in (-distance, distance)}
        places |= {place for place in near if 0 <= place <= last}
    return [row[place] for place in sorted(places)]
