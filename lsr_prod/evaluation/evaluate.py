"""Evaluation of a published index with relevance judgments, and with BM25 as the baseline of the same run."""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import ir_measures

from lsr_prod.config import Deployment, EvaluateSettings
from lsr_prod.errors import ConfigError
from lsr_prod.evaluation.collection import JudgedQueries, read_judged
from lsr_prod.evaluation.efficiency import flops, percentile
from lsr_prod.interchange.runs import Ranking, write_run
from lsr_prod.logs import get_log
from lsr_prod.search import Searcher, SearchResult
from lsr_prod.storage import is_remote, require_exists
from lsr_prod.storage.folders import file_exists

__all__ = ["Evaluation", "SystemReport", "check_evaluation", "evaluate_index"]

log = get_log(__name__)
_WARM_UP_QUERIES = 20


@dataclass(frozen=True, slots=True)
class SystemReport:
    """Quality and latency of one way to answer the queries.

    Attributes:
        name: ``bm25``, or ``threshold <t>``.
        measures: name of the measure -> mean over the judged queries.
        matched: mean number of documents with the required terms per query.
        match_p50_ms: milliseconds of matching and ranking only, median.
        match_p95_ms: milliseconds of matching and ranking only, 95th percentile.
        text_p50_ms: milliseconds from the text of the query to the hits, median.
        text_p95_ms: milliseconds from the text of the query to the hits, 95th percentile.
    """

    name: str
    measures: dict[str, float]
    matched: float
    match_p50_ms: float
    match_p95_ms: float
    text_p50_ms: float
    text_p95_ms: float


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Quality and cost of an index.

    Attributes:
        queries: number of judged queries.
        documents: number of documents.
        l0_query: mean number of terms per query after pruning.
        l0_document: mean number of terms per document.
        flops: papers/esplade-pretraining, eq. 1.
        systems: one report per system, BM25 first.
    """

    queries: int
    documents: int
    l0_query: float
    l0_document: float
    flops: float
    systems: list[SystemReport]

    def result(self) -> dict[str, Any]:
        """Return the fields as a dictionary, with the systems as dictionaries."""
        return asdict(self)


def evaluate_index(deployment: Deployment) -> Evaluation:
    """Answer every judged query with BM25 and at every overlap threshold.

    Raises:
        ConfigError: a path does not exist or a measure is unknown.
        SourceError: queries or judgments cannot be read.
    """
    settings = deployment.evaluate
    assert settings is not None
    options = deployment.storage.options
    check_evaluation(settings, options)
    if not is_remote(settings.index):
        require_exists("evaluate.index", settings.index)
    measures = [_measure(name) for name in settings.measures]
    judged = read_judged(settings.queries, settings.qrels, options)
    searcher = Searcher.open(settings.index, storage_options=options)
    answers: dict[str, Callable[[str], SearchResult]] = {}
    if settings.bm25:
        answers["bm25"] = partial(searcher.bm25, k=settings.k, count=True)
    for threshold in settings.thresholds:
        answers[f"threshold {threshold:g}"] = partial(
            searcher.search, k=settings.k, overlap_threshold=threshold, qk=settings.qk
        )
    reports = []
    for name, answer in answers.items():
        report, rankings = _report(name, searcher, answer, judged, measures)
        if settings.runs is not None:
            place = f"{settings.runs.rstrip('/')}/{name.replace(' ', '-')}.trec"
            write_run(place, rankings, tag=name, options=options)
        reports.append(report)
    encoded = searcher.encode(list(judged.queries.values()))
    queries = [query.top(settings.qk).ids.tolist() for query in encoded]
    terms = sorted({term for query in queries for term in query})
    return Evaluation(
        queries=len(judged.queries),
        documents=searcher.documents,
        l0_query=sum(map(len, queries)) / len(queries),
        l0_document=searcher.postings / max(1, searcher.documents),
        flops=flops(queries, {term: searcher.document_frequency(term) for term in terms}, searcher.documents),
        systems=reports,
    )


def check_evaluation(settings: EvaluateSettings, options: Mapping[str, str]) -> None:
    """Verify that queries and judgments exist.

    Raises:
        ConfigError: one of them is no file.
    """
    for name in ("queries", "qrels"):
        place = getattr(settings, name)
        if not file_exists(place, options):
            raise ConfigError(f"evaluate.{name}", f"there is no file at {place}", "give a path or URI that exists")


def _matched(searcher: Searcher, result: SearchResult) -> int:
    """Return the number of matching documents; if the search skipped blocks, count them outside the timed part."""
    if result.matched_exact:
        return result.matched
    return searcher.count({term.term: term.weight for term in result.query}, min_terms=result.required)


def _measure(name: str) -> Any:
    try:
        return ir_measures.parse_measure(name)
    except (NameError, ValueError, SyntaxError) as error:
        raise ConfigError(
            "evaluate.measures", f"{name!r} is unknown", "use names of ir_measures, e.g. nDCG@10"
        ) from error


def _report(
    name: str,
    searcher: Searcher,
    answer: Callable[[str], SearchResult],
    judged: JudgedQueries,
    measures: list[Any],
) -> tuple[SystemReport, dict[str, Ranking]]:
    for text in list(judged.queries.values())[:_WARM_UP_QUERIES]:
        answer(text)
    rankings: dict[str, Ranking] = {}
    matched, match_ms, text_ms = [], [], []
    for query_id, text in judged.queries.items():
        start = time.perf_counter()
        result = answer(text)
        text_ms.append((time.perf_counter() - start) * 1e3)
        match_ms.append(result.match_ms)
        matched.append(float(_matched(searcher, result)))
        rankings[query_id] = [(hit.doc_id, hit.score) for hit in result.hits]
    run = [
        ir_measures.ScoredDoc(query_id, doc_id, score)
        for query_id, ranking in rankings.items()
        for doc_id, score in ranking
    ]
    values = ir_measures.calc_aggregate(measures, judged.qrels, run)
    log.info("measured", extra={"fields": {"system": name, "queries": len(rankings)}})
    report = SystemReport(
        name=name,
        measures={str(measure): float(values[measure]) for measure in measures},
        matched=sum(matched) / len(matched),
        match_p50_ms=percentile(match_ms, 50),
        match_p95_ms=percentile(match_ms, 95),
        text_p50_ms=percentile(text_ms, 50),
        text_p95_ms=percentile(text_ms, 95),
    )
    return report, rankings
