"""Tune the hybrid weight and the overlap threshold of a published index.

Every candidate is measured by ``Searcher`` itself, so the chosen value is that of the product. Queries are encoded
once.
"""

import json
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lsr_prod.config import Deployment, TuneSettings
from lsr_prod.errors import ConfigError
from lsr_prod.evaluation.collection import JudgedQueries, read_judged
from lsr_prod.evaluation.measures import measure_by_query, parse_measures
from lsr_prod.evaluation.patches import Patch, evaluate_patch, limit_patch, search_options, write_patch
from lsr_prod.evaluation.significance import bootstrap_intervals
from lsr_prod.evaluation.tuning.candidates import Candidate, grid
from lsr_prod.evaluation.tuning.cross_validation import cross_validate, make_folds
from lsr_prod.evaluation.tuning.refinement import best_candidate
from lsr_prod.interchange.runs import Ranking
from lsr_prod.logs import get_log
from lsr_prod.search import Hybrid, Searcher
from lsr_prod.storage import is_remote, require_exists
from lsr_prod.storage.folders import file_exists, store_file

__all__ = ["CandidateValues", "TuneReport", "tune_index"]

log = get_log(__name__)

_DEPTH = 1000  # hits per query for a measure without cutoff
_RRF_DEPTH = 100
_PROGRESS_S = 10.0


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


class CandidateValues:
    """Measures candidates on an index, each once.

    Attributes:
        measured: values of every query by candidate, float64 [Q].
    """

    def __init__(self, searcher: Searcher, judged: JudgedQueries, settings: TuneSettings) -> None:
        """Encode the queries.

        Args:
            searcher: the opened index.
            judged: queries and judgments.
            settings: ``measure``, ``fusion``, ``qk`` and ``threads`` are read.

        Raises:
            ConfigError: the measure is unknown.
        """
        self.measured: dict[Candidate, npt.NDArray[np.float64]] = {}
        self._searcher, self._judged, self._settings = searcher, judged, settings
        self._measures = parse_measures("tune.measure", [settings.measure])
        self._depth = int(self._measures[settings.measure].params.get("cutoff", _DEPTH))
        encoded = searcher.encode(list(judged.queries.values()))
        self._vectors = [dict(zip(one.terms, one.weights.tolist(), strict=True)) for one in encoded]
        self._began = self._logged = time.monotonic()

    def __call__(self, candidate: Candidate) -> npt.NDArray[np.float64]:
        """Return the value of every query, float64 [Q]."""
        if candidate not in self.measured:
            weight, settings = candidate.hybrid_weight, self._settings
            depth = max(_RRF_DEPTH, self._depth)
            hybrid = None if weight is None else Hybrid(fusion=settings.fusion, words=weight, depth=depth)

            def search(vector: dict[str | int, float], text: str) -> list[tuple[str, float]]:
                words = None if hybrid is None else text
                found = self._searcher.search_vector(
                    vector,
                    self._depth,
                    text=words,
                    hybrid=hybrid,
                    overlap_threshold=candidate.threshold,
                    qk=settings.qk,
                )
                return [(hit.doc_id, hit.score) for hit in found.hits]

            with ThreadPoolExecutor(settings.threads) as pool:
                rankings = list(pool.map(search, self._vectors, self._judged.queries.values()))
            self.measured[candidate] = self._values(rankings)
            self._log()
        return self.measured[candidate]

    def bm25(self) -> npt.NDArray[np.float64]:
        """Return the value of every query for BM25 alone, float64 [Q]."""
        results = [self._searcher.bm25(text, self._depth) for text in self._judged.queries.values()]
        return self._values([[(hit.doc_id, hit.score) for hit in result.hits] for result in results])

    def _values(self, rankings: Sequence[Ranking]) -> npt.NDArray[np.float64]:
        ids = list(self._judged.queries)
        by_query = dict(zip(ids, rankings, strict=True))
        return measure_by_query(self._measures, self._judged.qrels, by_query, ids)[self._settings.measure]

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
        SourceError: queries or judgments cannot be read.
    """
    settings, options = deployment.tune, deployment.storage.options
    assert settings is not None
    judged = _read(settings, options)
    searcher = Searcher.open(settings.index, storage_options=options)
    if searcher.snapshot.version.average_length is None:
        raise ConfigError(
            "tune.index", f"{settings.index} has no postings of words", "build the index with index.bm25: true"
        )
    values = CandidateValues(searcher, judged, settings)
    weights = grid(settings.lowest_weight, settings.highest_weight, settings.steps_per_octave)

    def choose(queries: npt.NDArray[np.bool_]) -> Candidate:
        return best_candidate(
            lambda one: float(values(one)[queries].mean()),
            settings.thresholds,
            weights,
            exhaustive=settings.search == "exhaustive",
        )

    chosen = choose(np.ones(len(judged.queries), np.bool_))
    held_out, choices = cross_validate(choose, values, make_folds(len(judged.queries), settings.folds, settings.seed))
    ((low, high),) = bootstrap_intervals(held_out[:, None], seed=settings.seed).tolist()
    report = TuneReport(
        measure=settings.measure,
        queries=len(judged.queries),
        chosen=chosen,
        value=float(values(chosen).mean()),
        cross_validated=float(held_out.mean()),
        low=low,
        high=high,
        no_words=max(float(values(Candidate(threshold, None)).mean()) for threshold in settings.thresholds),
        bm25=float(values.bm25().mean()),
        choices=choices,
        curve=[(one, float(values(one).mean())) for one in sorted(values.measured, key=_order)],
        patch=limit_patch(_patch(deployment, settings, chosen), deployment),
        search=search_options(
            qk=settings.qk,
            threshold=chosen.threshold,
            hybrid_weight=chosen.hybrid_weight,
            fusion=settings.fusion,
        ),
    )
    if settings.output is not None:
        place = settings.output.rstrip("/")
        store_file(f"{place}/tune.json", json.dumps(report.result(), allow_nan=False).encode(), options)
        write_patch(f"{place}/patch.yaml", report.patch, report.sentence, report.search, options)
    return report


def _read(settings: TuneSettings, options: Mapping[str, str]) -> JudgedQueries:
    """Read queries and judgments.

    Raises:
        ConfigError: a file or the index does not exist, or there are fewer queries than folds.
        SourceError: a line is invalid.
    """
    for name in ("queries", "qrels"):
        place = getattr(settings, name)
        if not file_exists(place, options):
            raise ConfigError(f"tune.{name}", f"there is no file at {place}", "give a path or URI that exists")
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


def _patch(deployment: Deployment, settings: TuneSettings, chosen: Candidate) -> Patch:
    search = search_options(
        qk=settings.qk, threshold=chosen.threshold, hybrid_weight=chosen.hybrid_weight, fusion=settings.fusion
    )
    patch = {"evaluate": evaluate_patch(deployment, search)}
    return patch if chosen.hybrid_weight is None else {"index": {"bm25": True}, **patch}


def _order(candidate: Candidate) -> tuple[float, float]:
    return candidate.threshold, candidate.hybrid_weight or 0.0


def _row(candidate: Candidate) -> dict[str, Any]:
    return {"threshold": candidate.threshold, "hybrid_weight": candidate.hybrid_weight}
