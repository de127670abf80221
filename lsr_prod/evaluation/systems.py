"""Systems of an evaluation: ways to answer the same queries from one index, or rankings of another engine."""

import heapq
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import numpy as np

from lsr_prod.config import EvaluateSettings, evaluate
from lsr_prod.errors import ConfigError, QueryError, SourceError
from lsr_prod.evaluation.cost import WEIGHT_TOLERANCE, Threshold, count_matches
from lsr_prod.evaluation.runs import Ranking, read_run
from lsr_prod.search import Hybrid, Options, Searcher, SearchResult, candidates, index_snapshot
from lsr_prod.search.query.search_request import CountOptions, Request
from lsr_prod.search.query.sparse_query import MAX_K, SparseQuery
from lsr_prod.search.shard.postings import ShardQuery

WARM_UP_QUERIES = 20  # untimed, before timed ones


@dataclass(frozen=True, slots=True)
class EncodedQuery:
    """A query, encoded once for all systems."""

    query_id: str  # id
    text: str  # the text
    vector: SparseQuery  # terms and weights, not pruned
    encode_ms: float  # milliseconds that encoding this text alone took


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of a system to one query."""

    ranking: Ranking  # document ids and scores, best first
    matched: int | None  # documents that fulfil the condition of the system; None: not counted yet, or unknown
    match_ms: float | None  # milliseconds of matching and ranking; None: unknown
    text_ms: float | None  # milliseconds from the text to the hits; None: unknown


class System(Protocol):
    """One way to answer queries."""

    def answer(self, query: EncodedQuery) -> Answer:
        """Rank documents for a query."""

    def count(self, queries: Sequence[EncodedQuery]) -> list[int] | None:
        """Count the documents that fulfil the condition of the system for each query; None: unknown."""


def encode_queries(searcher: Searcher, texts: Mapping[str, str]) -> list[EncodedQuery]:
    """Encode every query alone, as a search does, and time it."""
    for text in list(texts.values())[:WARM_UP_QUERIES]:
        searcher.encode([text])
    queries = []
    for query_id, text in texts.items():
        start = time.perf_counter()
        (vector,) = searcher.encode([text])
        queries.append(EncodedQuery(query_id, text, vector, (time.perf_counter() - start) * 1e3))
    return queries


def chosen_systems(settings: EvaluateSettings, *, has_text: bool, has_words: bool) -> list[evaluate.SystemSettings]:
    """Return the systems to compare: the given ones, or those of the short form."""
    if settings.systems is not None:
        systems = [_with_qk(system, settings.qk) for system in settings.systems]
    else:
        systems = [evaluate.Bm25System(kind="bm25")] if settings.bm25 else []
        systems += [
            evaluate.SparseSystem(
                kind="sparse",
                name=f"threshold {np.format_float_positional(value, trim='-')}",
                overlap_threshold=value,
                qk=settings.qk,
            )
            for value in dict.fromkeys(settings.thresholds)
        ]
        if settings.hybrid and has_words:
            systems.append(evaluate.HybridSystem(kind="hybrid", qk=settings.qk))
    for system in systems:
        field = "evaluate.bm25" if settings.systems is None else "evaluate.systems"
        if isinstance(system, evaluate.Bm25System) and not has_text:
            problem = "the index has no text for BM25"
            raise ConfigError(field, problem, "leave BM25 out, or build it with index.text_fields")
        if isinstance(system, evaluate.HybridSystem) and not has_words:
            problem = f"{system.name!r} needs postings of words"
            raise ConfigError(field, problem, "build the index with index.bm25: true")
    names = [system.name for system in systems]
    if settings.baseline is not None and settings.baseline not in names:
        problem = f"there is no system {settings.baseline!r}"
        raise ConfigError("evaluate.baseline", problem, f"use one of {', '.join(names)}")
    return systems


def check_systems(settings: EvaluateSettings) -> None:
    """Verify the options of all systems that need no index."""
    for system in settings.systems or []:
        if not isinstance(system, evaluate.Bm25System | evaluate.RunSystem):
            try:
                Request(k=settings.k, **_options(system, settings.k))
            except QueryError as error:
                raise ConfigError("evaluate.systems", f"{system.name!r} is not possible", str(error)) from error


def open_system(
    system: evaluate.SystemSettings,
    searcher: Searcher,
    *,
    k: int,
    query_ids: Sequence[str],
    options: Mapping[str, str] | None = None,
) -> System:
    """Return what answers the queries of a system."""
    if isinstance(system, evaluate.RunSystem):
        rankings = read_run(system.path, options)
        if not rankings.keys() & set(query_ids):
            raise SourceError(f"{system.path} ranks documents for none of the judged queries; give a run of them")
        return _Run({query_id: rankings[query_id][:k] for query_id in query_ids if query_id in rankings})
    if isinstance(system, evaluate.Bm25System):
        return _Bm25(searcher, k)
    if isinstance(system, evaluate.SparseSystem) and system.weight_threshold:
        return _AboveWeight(searcher, system.weight_threshold, system.qk, k)
    return _Search(searcher, _options(system, k), k, words=isinstance(system, evaluate.HybridSystem))


@dataclass(frozen=True, slots=True)
class _Run:
    """Rankings of another engine."""

    rankings: Mapping[str, Ranking]

    def answer(self, query: EncodedQuery) -> Answer:
        return Answer(self.rankings.get(query.query_id, ()), None, None, None)

    def count(self, queries: Sequence[EncodedQuery]) -> list[int] | None:  # noqa: ARG002 - unknown for any query
        return None


@dataclass(frozen=True, slots=True)
class _Bm25:
    """BM25 over the text fields."""

    searcher: Searcher
    k: int

    def answer(self, query: EncodedQuery) -> Answer:
        start = time.perf_counter()
        return _answer(self.searcher.bm25(query.text, self.k), (time.perf_counter() - start) * 1e3)

    def count(self, queries: Sequence[EncodedQuery]) -> list[int] | None:
        return [self.searcher.bm25(query.text, 1, count=True).matched for query in queries]


@dataclass(frozen=True, slots=True)
class _Search:
    """A search of the library by the encoder's terms, with the words of the text in a hybrid."""

    searcher: Searcher
    options: Options
    k: int
    words: bool

    def answer(self, query: EncodedQuery) -> Answer:
        search = partial(self.searcher.search_vector, _mapping(query.vector), text=query.text if self.words else None)
        start = time.perf_counter()
        return _answer(search(self.k, **self.options), query.encode_ms + (time.perf_counter() - start) * 1e3)

    def count(self, queries: Sequence[EncodedQuery]) -> list[int] | None:
        counted = CountOptions(
            overlap_threshold=self.options["overlap_threshold"],
            min_terms=self.options["min_terms"],
            qk=self.options["qk"],
            hybrid=self.options.get("hybrid"),
        )  # rescoring changes scores, not the matches
        return [
            self.searcher.count(_mapping(query.vector), text=query.text if self.words else None, **counted)
            for query in queries
        ]


@dataclass(frozen=True, slots=True)
class _AboveWeight:
    """A search with a threshold on the share of the query's weight."""

    searcher: Searcher
    share: float
    qk: int | None
    k: int

    def answer(self, query: EncodedQuery) -> Answer:
        start = time.perf_counter()
        ranking = search_above_weight(self.searcher.snapshot, query.vector.top(self.qk), self.share, self.k)
        took = (time.perf_counter() - start) * 1e3
        return Answer(ranking, None, took, query.encode_ms + took)

    def count(self, queries: Sequence[EncodedQuery]) -> list[int] | None:
        vectors = [query.vector.top(self.qk) for query in queries]
        (matched,) = count_matches(self.searcher.snapshot, vectors, [Threshold("weight", self.share)]).tolist()
        return list(matched)


def _answer(result: SearchResult, text_ms: float) -> Answer:
    ranking = [(hit.doc_id, hit.score) for hit in result.hits]
    return Answer(ranking, result.matched if result.matched_exact else None, result.match_ms, text_ms)


def _options(system: evaluate.SparseSystem | evaluate.HybridSystem | evaluate.TwoStepSystem, k: int) -> Options:
    options = Options(overlap_threshold=system.overlap_threshold, min_terms=system.min_terms, qk=system.qk)
    if isinstance(system, evaluate.TwoStepSystem):
        options["rescore"] = k if system.rescore is None else system.rescore
    if isinstance(system, evaluate.HybridSystem):
        hybrid = Hybrid(terms=system.terms, words=system.words)
        if system.fusion == "rrf":
            depth = max(k, 1) if system.depth is None else system.depth
            hybrid = replace(hybrid, fusion="rrf", constant=system.constant, depth=depth)
        options["hybrid"] = hybrid
    return options


def _with_qk(system: evaluate.SystemSettings, qk: int | None) -> evaluate.SystemSettings:
    """Return the settings of a system with the common ``qk`` if it has none of its own."""
    if isinstance(system, evaluate.SparseSystem | evaluate.HybridSystem) and system.qk is None:
        return system.model_copy(update={"qk": qk})
    return system


def _mapping(vector: SparseQuery) -> dict[str | int, float]:
    """Return a vector as a caller gives it; terms outside the vocabulary by name."""
    pairs = zip(vector.ids.tolist(), vector.terms, vector.weights.tolist(), strict=True)
    return {term if term_id < 0 else term_id: weight for term_id, term, weight in pairs}


def search_above_weight(snapshot: index_snapshot.Snapshot, query: SparseQuery, share: float, k: int) -> Ranking:
    """Return the best documents whose shared terms have at least a share of the query's weight.

    Documents after the best 10,000 of a search without a threshold are not considered.

    Returns:
        Document ids and scores, best first.
    """
    known = query.ids >= 0
    ids, weights = query.ids[known], query.weights[known]
    counted = np.ones(len(ids), np.uint8)
    found = snapshot.match(ShardQuery(ids, query.scaled(snapshot.version.impact_step)[known], counted, 1, MAX_K))
    least = (share - WEIGHT_TOLERANCE) * float(query.weights.sum(dtype=np.float64))
    passing: list[candidates.Ranked] = []
    for number, reader in snapshot.readers.items():
        mine = [row for row in found.ranked if row[2] == number]
        ordinals = np.array([row[3] for row in mine], np.int64)
        offsets, terms, impacts = reader.shard.forward.gather(ordinals, reader.dk)
        ones = np.ones_like(impacts)  # scores are then sums of the query's weights
        covered, _ = reader.shard.forward.score(ordinals, ids, weights, dk=reader.dk, vectors=(offsets, terms, ones))
        passing += [row for row, enough in zip(mine, (covered >= least).tolist(), strict=True) if enough]
    return [(doc_id, -negative) for negative, doc_id, *_ in heapq.nsmallest(k, passing)]
