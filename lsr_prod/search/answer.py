"""From a query and a version to a ``SearchResult``."""

import time
from dataclasses import replace

from lsr_prod.errors import QueryError
from lsr_prod.search.hybrid import weigh_words
from lsr_prod.search.merge import Candidates, Shards, fetch_hits, find_best, find_by_words
from lsr_prod.search.query import SparseQuery
from lsr_prod.search.request import Request
from lsr_prod.search.result import QueryTerm, SearchResult
from lsr_prod.search.snapshot import Snapshot

__all__ = ["answer_bm25", "answer_query", "milliseconds"]


def answer_query(
    snapshot: Snapshot, shards: Shards, query: SparseQuery, request: Request, *, encode_ms: float, text: str | None
) -> SearchResult:
    """Answer a query from one version.

    Args:
        snapshot: the version.
        shards: its shards, wherever they are.
        query: the whole query, before ``qk``.
        request: how to match, rank and answer.
        encode_ms: milliseconds that the query took so far.
        text: whose words a hybrid search reads.

    Raises:
        QueryError: the request does not fit the index.
        ArtifactError: a shard is damaged.
    """
    snapshot.check_fields(request.fields if request.deduplicate is None else [*request.fields, request.deduplicate])
    if request.filter is not None:
        request = replace(request, filter=snapshot.check_filter(request.filter))
    start = time.perf_counter()
    deadline = None
    if request.deadline_ms is not None:
        deadline = time.monotonic() + (request.deadline_ms - encode_ms) / 1e3
    step = snapshot.version.impact_step
    words = None if request.hybrid is None or text is None else weigh_words(shards, snapshot.version, text)
    best = find_best(shards, query, request, impact_step=step, deadline=deadline, words=words)
    asked = query.top(request.qk)
    terms = tuple(QueryTerm(term, weight) for term, weight in zip(asked.terms, asked.weights.tolist(), strict=True))
    if words is not None:
        terms += words.query_terms
    return _result(snapshot, shards, best, request, request.required(len(asked.ids)), terms, encode_ms, start)


def answer_bm25(snapshot: Snapshot, shards: Shards, text: str, request: Request) -> SearchResult:
    """Rank by BM25: from the arrays if the index has words, else by Tantivy.

    Args:
        snapshot: the version.
        shards: its shards, wherever they are; Tantivy reads those that ``snapshot`` has open.
        text: the query.
        request: of it, ``k``, ``count`` and ``fields`` are read.

    Raises:
        QueryError: a field is not stored, or the index has no text fields.
    """
    from lsr_prod.search.baseline import rank_bm25
    from lsr_prod.terms.analysis import distinct_words

    snapshot.check_fields(request.fields)
    if not snapshot.version.text_fields:
        raise QueryError("this index has no text for BM25; build it with index.text_fields")
    start = time.perf_counter()
    if snapshot.version.average_length is None:
        names = distinct_words(text)
        best = rank_bm25(snapshot, names, request.k)
        query = tuple(QueryTerm(name, 1.0, "text") for name in names)
        return _result(snapshot, snapshot, best, request, 1, query, 0.0, start)
    words = weigh_words(shards, snapshot.version, text)
    best = find_by_words(shards, words, request)
    return _result(snapshot, shards, best, request, 1, words.query_terms, 0.0, start)


def _result(
    snapshot: Snapshot,
    shards: Shards,
    best: Candidates,
    request: Request,
    required: int,
    query: tuple[QueryTerm, ...],
    encode_ms: float,
    start: float,
) -> SearchResult:
    match_ms, start = milliseconds(start), time.perf_counter()
    hits = fetch_hits(shards, best.ranked, request.fields)
    return SearchResult(
        hits,
        best.matched,
        best.exact,
        required,
        query,
        snapshot.publication.version,
        best.partial,
        encode_ms,
        match_ms,
        milliseconds(start),
    )


def milliseconds(start: float) -> float:
    """Since ``start``, a ``time.perf_counter()``."""
    return (time.perf_counter() - start) * 1e3
