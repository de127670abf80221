"""Evaluation of a published index: any number of systems on the same judged queries, with tests and costs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import ir_measures
import numpy as np

from lsr_prod.config import Deployment, EvaluateSettings, evaluate
from lsr_prod.errors import ConfigError
from lsr_prod.evaluation.collection import check_relevant, read_judged, require_files
from lsr_prod.evaluation.comparisons import Comparison, SignificanceOptions, compare_with_baseline, mean_intervals
from lsr_prod.evaluation.cost import Efficiency, measure_cost, percentile
from lsr_prod.evaluation.measures import measure, parse_measures
from lsr_prod.evaluation.runs import write_run
from lsr_prod.evaluation.systems import (
    WARM_UP_QUERIES,
    Answer,
    EncodedQuery,
    System,
    check_systems,
    chosen_systems,
    encode_queries,
    open_system,
)
from lsr_prod.logs import get_log, without_credentials
from lsr_prod.search import Searcher
from lsr_prod.storage import folders, is_remote, require_exists

log = get_log(__name__)

OUTPUT_FILE = "evaluation.json"


@dataclass(frozen=True, slots=True)
class SystemReport:
    """Quality and latency of one way to answer the queries.

    Attributes:
        name: name in tables, such as ``bm25`` or ``threshold 0.4``.
        kind: ``bm25``, ``sparse``, ``hybrid``, ``two-step`` or ``run``.
        measures: name of the measure -> mean over the judged queries.
        intervals: name of the measure -> ends of the bootstrap interval of the mean.
        by_query: name of the measure -> value per query, in the order of ``Evaluation.query_ids``.
        matched: mean number of documents with the required terms per query; None for a run of another engine.
        matched_by_query: this number per query.
        match_p50_ms: milliseconds of matching and ranking only, median; None for a run, as all latencies.
        match_p95_ms: milliseconds of matching and ranking only, 95th percentile.
        text_p50_ms: milliseconds from the text of the query to the hits, median.
        text_p95_ms: milliseconds from the text of the query to the hits, 95th percentile.
    """

    name: str
    kind: str
    measures: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    by_query: dict[str, list[float]]
    matched: float | None
    matched_by_query: list[int] | None
    match_p50_ms: float | None
    match_p95_ms: float | None
    text_p50_ms: float | None
    text_p95_ms: float | None


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Quality and cost of an index.

    Attributes:
        index: path or URI of the index.
        version: sha256 of the index version.
        queries: number of judged queries.
        documents: number of documents.
        l0_query: mean number of terms per query after pruning.
        l0_document: mean number of terms per document.
        flops: papers/esplade-pretraining, eq. 1.
        query_ids: the judged queries.
        query_texts: their texts.
        systems: one report per system.
        baseline: name of the system that the others are compared with.
        significance: level of the tests; intervals hold 1 minus this share.
        correction: correction of the p values.
        comparisons: every other system against the baseline, in every measure.
        efficiency: cost of the index and of its queries.
    """

    index: str
    version: str
    queries: int
    documents: int
    l0_query: float
    l0_document: float
    flops: float
    query_ids: list[str]
    query_texts: list[str]
    systems: list[SystemReport]
    baseline: str
    significance: float
    correction: str
    comparisons: list[Comparison]
    efficiency: Efficiency

    def result(self) -> dict[str, Any]:
        """Return all fields as plain JSON values, values per query included."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))  # tuples become lists
        return plain

    def summary(self) -> dict[str, Any]:
        """Return the result without texts, values per query and the curve of the postings lists."""
        return brief(self.result())


def brief(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``Evaluation.result()`` without texts, values per query and the curve of the postings lists."""
    efficiency = {name: value for name, value in result["efficiency"].items() if name != "by_query"}
    efficiency["postings"] = {name: value for name, value in efficiency["postings"].items() if name != "curve"}
    per_query = ("by_query", "matched_by_query")
    systems = [{name: value for name, value in one.items() if name not in per_query} for one in result["systems"]]
    kept = {name: value for name, value in result.items() if name not in ("query_ids", "query_texts")}
    return {**kept, "systems": systems, "efficiency": efficiency}


def evaluate_index(deployment: Deployment) -> Evaluation:
    """Answer every judged query with every system, measure, test and count; write run files and the result if asked.

    Raises:
        ConfigError: a path does not exist, a measure is unknown, or the index cannot answer for a system.
        SourceError: queries, judgments or a run cannot be read, or no relevant document is in the index.
        StorageError: the index, or the store of an output, fails.
    """
    settings = deployment.evaluate
    assert settings is not None
    options = deployment.storage.options
    check_evaluation(settings, options)
    if not is_remote(settings.index):
        require_exists("evaluate.index", settings.index)
    measures = {str(one): one for one in parse_measures("evaluate.measures", settings.measures).values()}
    judged = read_judged(settings.queries, settings.qrels, options)
    with Searcher.open(settings.index, storage_options=options) as searcher:
        check_relevant(judged.qrels, settings.qrels, searcher.snapshot.place)
        version = searcher.version
        chosen = chosen_systems(
            settings, has_text=bool(version.text_fields), has_words=version.average_length is not None
        )
        ids = list(judged.queries)
        systems = [open_system(one, searcher, k=settings.k, query_ids=ids, options=options) for one in chosen]
        queries = encode_queries(searcher, judged.queries)
        tests = SignificanceOptions(settings.significance, settings.correction, settings.resamples, settings.seed)
        reports = [
            _report(each, system, queries, judged.qrels, measures, settings.runs, tests, options)
            for each, system in zip(chosen, systems, strict=True)
        ]
        first_bm25 = next((report.name for report in reports if report.kind == "bm25"), reports[0].name)
        baseline = first_bm25 if settings.baseline is None else settings.baseline
        by_query = {one.name: {name: np.array(column) for name, column in one.by_query.items()} for one in reports}
        vectors = [query.vector.top(settings.qk) for query in queries]
        cost = measure_cost(searcher.snapshot, vectors, sampled=settings.cost_queries)
        first = next(iter(measures))
        gains = cost.by_query.with_gains({report.name: report.by_query[first] for report in reports}, first, baseline)
        efficiency = replace(cost, by_query=gains)
        evaluation = Evaluation(
            index=without_credentials(settings.index),
            version=searcher.publication.version,
            queries=len(ids),
            documents=searcher.documents,
            l0_query=efficiency.l0_query.mean,
            l0_document=efficiency.l0_document.mean,
            flops=sum(efficiency.by_query.multiplications) / max(1, len(ids) * searcher.documents),
            query_ids=ids,
            query_texts=list(judged.queries.values()),
            systems=reports,
            baseline=baseline,
            significance=settings.significance,
            correction=settings.correction,
            comparisons=compare_with_baseline(by_query, baseline, tests),
            efficiency=efficiency,
        )
    if settings.output is not None:
        data = json.dumps(evaluation.result(), ensure_ascii=False, allow_nan=False).encode()
        folders.store_file(f"{settings.output.rstrip('/')}/{OUTPUT_FILE}", data, options)
    return evaluation


def check_evaluation(settings: EvaluateSettings, options: Mapping[str, str]) -> None:
    """Verify everything that needs no index: files, measures, and the options of the systems."""
    places = {"evaluate.queries": settings.queries, "evaluate.qrels": settings.qrels}
    for system in settings.systems or []:
        if system.kind == "run":
            places[f"evaluate.systems ({system.name})"] = system.path
    require_files(places, options)
    for field in ("output", "runs"):
        if (place := getattr(settings, field)) is not None:
            folders.refuse_file(f"evaluate.{field}", place)
    for name, one in parse_measures("evaluate.measures", settings.measures).items():
        if settings.k < one.params.get("cutoff", 1):
            raise ConfigError("evaluate.k", f"{settings.k} hits are too few for {name}", "raise it, or set measures")
    check_systems(settings)


def _report(
    settings: evaluate.SystemSettings,
    system: System,
    queries: Sequence[EncodedQuery],
    qrels: Sequence[ir_measures.Qrel],
    measures: Mapping[str, Any],
    runs: str | None,
    tests: SignificanceOptions,
    options: Mapping[str, str],
) -> SystemReport:
    """Answer all queries with one system, and write its run file if asked."""
    for query in queries[:WARM_UP_QUERIES]:
        system.answer(query)
    values = measure(system, queries, qrels, measures)
    if runs is not None:
        rankings = {query.query_id: answer.ranking for query, answer in zip(queries, values.answers, strict=True)}
        place = f"{runs.rstrip('/')}/{settings.name.replace(' ', '-')}.trec"
        write_run(place, rankings, tag=settings.name, options=options)
    matched = _matched(system, queries, values.answers)
    match_ms = [answer.match_ms for answer in values.answers if answer.match_ms is not None]
    text_ms = [answer.text_ms for answer in values.answers if answer.text_ms is not None]
    log.info("measured", extra={"fields": {"system": settings.name, "queries": len(queries)}})
    return SystemReport(
        name=settings.name,
        kind=settings.kind,
        measures=values.means,
        intervals=mean_intervals(values.by_query, tests),
        by_query={name: row.tolist() for name, row in values.by_query.items()},
        matched=None if matched is None else sum(matched) / len(matched),
        matched_by_query=matched,
        match_p50_ms=percentile(match_ms, 50) if match_ms else None,
        match_p95_ms=percentile(match_ms, 95) if match_ms else None,
        text_p50_ms=percentile(text_ms, 50) if text_ms else None,
        text_p95_ms=percentile(text_ms, 95) if text_ms else None,
    )


def _matched(system: System, queries: Sequence[EncodedQuery], answers: Sequence[Answer]) -> list[int] | None:
    """Return the matching documents per query; those that an answer lacks are counted outside the timed part.

    None if they are unknown.
    """
    counted = system.count([query for query, answer in zip(queries, answers, strict=True) if answer.matched is None])
    if counted is None:
        return None
    rest = iter(counted)
    return [next(rest) if answer.matched is None else answer.matched for answer in answers]
