"""Tune the hybrid weight and the overlap threshold of a published index.

Every candidate is measured by ``Searcher`` itself, so the chosen value is that of the product. Queries are encoded
once.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from lsr_prod.config import Deployment, TuneSettings
from lsr_prod.errors import ConfigError
from lsr_prod.evaluation.collection import JudgedQueries, read_judged
from lsr_prod.evaluation.measures import parse_measures
from lsr_prod.evaluation.patches import evaluate_patch, limit_patch, search_options
from lsr_prod.evaluation.significance import bootstrap_intervals
from lsr_prod.evaluation.tuning.candidates import Candidate, grid, preference
from lsr_prod.evaluation.tuning.cross_validation import cross_validate, make_folds
from lsr_prod.evaluation.tuning.refinement import best_candidate
from lsr_prod.evaluation.tuning.report import TuneReport, write_report
from lsr_prod.evaluation.tuning.values import CandidateValues
from lsr_prod.search import Searcher
from lsr_prod.storage import is_remote, require_exists
from lsr_prod.storage.folders import file_exists


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
    with Searcher.open(settings.index, storage_options=options) as searcher:
        if searcher.snapshot.version.average_length is None:
            raise ConfigError(
                "tune.index", f"{settings.index} has no postings of words", "build the index with index.bm25: true"
            )
        report = _tune(deployment, settings, CandidateValues(searcher, judged, settings))
    if settings.output is not None:
        write_report(report, settings.output, options)
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
        qk=settings.qk, threshold=chosen.threshold, hybrid_weight=chosen.hybrid_weight, fusion=settings.fusion
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
    """Read queries and judgments."""
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


def _order(candidate: Candidate) -> tuple[float, float]:
    return candidate.threshold, candidate.hybrid_weight or 0.0
