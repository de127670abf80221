"""Execute a query: from a request and a snapshot to a ``SearchResult``.

``execute_query`` matches all shards, fuses or rescores where the request says so, removes duplicates and fetches the
fields of the hits. The number of shards changes no hit, ties included.
"""

import heapq
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from lsr_prod.errors import QueryError
from lsr_prod.search.candidates import Candidates, Ranked, Shards
from lsr_prod.search.hybrid import WeighedWords, fuse_ranks, weigh_words, with_words
from lsr_prod.search.query.request import Hybrid, Request
from lsr_prod.search.query.sparse_query import SparseQuery
from lsr_prod.search.result import Hit, QueryTerm, SearchResult
from lsr_prod.search.shard.shard_query import ShardQuery
from lsr_prod.search.snapshot import Snapshot

__all__ = ["execute_bm25", "execute_query", "milliseconds_since"]

_TINY = 1e-30  # below every score of a word, above zero in float32


def execute_query(
    snapshot: Snapshot, shards: Shards, query: SparseQuery, request: Request, *, encode_ms: float, text: str | None
) -> SearchResult:
    """Search one version for a query.

    Args:
        snapshot: the version.
        shards: all shards of the version, in this process or in others.
        query: the whole query, before ``qk``.
        request: how to match and rank, and which fields to return.
        encode_ms: milliseconds that encoding the query took.
        text: text whose words a hybrid search matches.

    Raises:
        QueryError: the request does not fit the index, or a score could leave the range of float32.
        ArtifactError: a shard is damaged.
    """
    snapshot.check_fields(request.fields if request.deduplicate is None else [*request.fields, request.deduplicate])
    if request.filter is not None:
        request = replace(request, filter=snapshot.check_filter(request.filter))
    start = time.perf_counter()
    deadline = None
    if request.deadline_ms is not None:
        deadline = time.monotonic() + (request.deadline_ms - encode_ms) / 1e3
    words = None if request.hybrid is None or text is None else weigh_words(shards, snapshot.version, text)
    weights = query.scaled(snapshot.version.impact_step)
    kept = query.top(request.qk)
    shard_query = _shard_query(kept, weights[: len(kept.ids)], request, deadline)
    while True:
        found = _match(shards, shard_query, request, words)
        ranked = found.ranked
        if request.rescore is not None:
            ranked = _rescore(shards, ranked, query, weights, request.min_score)
        if request.deduplicate is None:
            break
        no_more = len(ranked) < shard_query.k or found.partial or request.rescore is not None
        ranked = _deduplicate(shards, ranked, request.deduplicate)
        if len(ranked) >= request.k or no_more:
            break
        shard_query = replace(shard_query, k=2 * shard_query.k)  # duplicates took the places of other documents
    query_terms = tuple(QueryTerm(term, weight) for term, weight in zip(kept.terms, kept.weights.tolist(), strict=True))
    if words is not None:
        query_terms += words.query_terms
    match_ms, start = milliseconds_since(start), time.perf_counter()
    hits = _fetch_hits(shards, ranked[: request.k], request.fields)
    return SearchResult(
        hits,
        found.matched,
        found.exact,
        shard_query.required,
        query_terms,
        snapshot.publication.version,
        found.partial,
        encode_ms,
        match_ms,
        milliseconds_since(start),
    )


def execute_bm25(snapshot: Snapshot, shards: Shards, text: str, request: Request) -> SearchResult:
    """Rank by BM25: from the postings if the index has words, else by Tantivy.

    Args:
        snapshot: the version.
        shards: all shards of the version; Tantivy searches the shards that ``snapshot`` has open instead.
        text: the query.
        request: ``k``, ``count`` and ``fields`` are read.

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
        found = rank_bm25(snapshot, names, request.k)
        ranked, query_terms = found.ranked, tuple(QueryTerm(name, 1.0, "text") for name in names)
        shards = snapshot
    else:
        words = weigh_words(shards, snapshot.version, text)
        ids, weights, counted = np.empty(0, np.int32), np.empty(0, np.float32), np.empty(0, np.uint8)
        no_terms = ShardQuery(ids, weights, counted, 1, request.k, exhaustive=request.count)
        found = shards.match(with_words(no_terms, words, counted=True))
        ranked, query_terms = heapq.nsmallest(request.k, found.ranked), words.query_terms
    match_ms, start = milliseconds_since(start), time.perf_counter()
    hits = _fetch_hits(shards, ranked, request.fields)
    return SearchResult(
        hits,
        found.matched,
        found.exact,
        1,
        query_terms,
        snapshot.publication.version,
        found.partial,
        0.0,
        match_ms,
        milliseconds_since(start),
    )


def milliseconds_since(start: float) -> float:
    """Return the milliseconds since ``start``, a ``time.perf_counter()``."""
    return (time.perf_counter() - start) * 1e3


def _shard_query(
    kept: SparseQuery, weights: npt.NDArray[np.float32], request: Request, deadline: float | None
) -> ShardQuery:
    known = kept.ids >= 0
    return ShardQuery(
        kept.ids[known],
        weights[known],
        np.ones(int(known.sum()), np.uint8),
        request.required(len(kept.ids)),
        request.k if request.rescore is None else request.rescore,
        # Rescoring changes scores, so min_score applies after it.
        floor=request.min_score if request.rescore is None else 0.0,
        exhaustive=request.count,
        deadline=deadline,
        filter=request.filter,
    )


def _match(shards: Shards, query: ShardQuery, request: Request, words: WeighedWords | None) -> Candidates:
    """Return the best ``query.k`` documents of all shards, sorted."""
    if request.hybrid is not None and words is not None:
        if request.hybrid.fusion == "rrf":
            return _match_and_fuse(shards, query, request, request.hybrid, words)
        query = with_words(query, words, request.hybrid, counted=not request.has_threshold)
    found = shards.match(query)
    return Candidates(heapq.nsmallest(query.k, found.ranked), found.matched, found.exact, found.partial)


def _match_and_fuse(
    shards: Shards, query: ShardQuery, request: Request, hybrid: Hybrid, words: WeighedWords
) -> Candidates:
    """Match terms and words separately and fuse the ranks; return the best ``query.k`` documents."""
    by_terms = replace(query, k=hybrid.depth, floor=0.0)
    if request.has_threshold:
        # The terms count for the threshold but score 0, so a document without any of the words is below the floor.
        by_words = with_words(
            replace(by_terms, floor=_TINY, weights=np.zeros_like(query.weights)), words, counted=False
        )
    else:
        no_terms = replace(by_terms, ids=query.ids[:0], weights=query.weights[:0], counted=query.counted[:0])
        by_words = with_words(no_terms, words, counted=True)
    found = [shards.match(each) for each in (by_terms, by_words)]
    lists = [heapq.nsmallest(hybrid.depth, each.ranked) for each in found]
    fused = fuse_ranks(lists[0], lists[1], hybrid, same_counts=request.has_threshold)
    fused = [row for row in fused if -row[0] >= request.min_score]
    matched, exact = found[0].matched, found[0].exact
    if not request.has_threshold:
        # A document may be in both lists; only a scan of both together counts it once.
        matched, exact = max(each.matched for each in found), False
        if request.count:
            counted = shards.match(with_words(replace(by_terms, k=0), words, counted=True))
            matched, exact = counted.matched, counted.exact
    return Candidates(fused[: query.k], matched, exact, any(each.partial for each in found))


def _rescore(
    shards: Shards,
    ranked: Sequence[Ranked],
    query: SparseQuery,
    weights: npt.NDArray[np.float32],
    min_score: float,
) -> Sequence[Ranked]:
    """Rank documents again by the whole query and all their stored terms."""
    known = query.ids >= 0
    rescored = sorted(shards.rescore(ranked, query.ids[known], weights[known]))
    return [row for row in rescored if -row[0] >= np.float32(min_score)]


def _deduplicate(shards: Shards, ranked: Sequence[Ranked], name: str) -> list[Ranked]:
    """Keep the first document of every value of a field, and all documents without a value."""
    seen, kept = set(), []
    for row, fields in zip(ranked, shards.fields(ranked, [name]), strict=True):
        value = fields[name]
        if value is None or value not in seen:
            seen.add(value)
            kept.append(row)
    return kept


def _fetch_hits(shards: Shards, ranked: Sequence[Ranked], fields: Sequence[str]) -> tuple[Hit, ...]:
    values = shards.fields(ranked, fields) if fields else [{}] * len(ranked)
    return tuple(
        Hit(doc_id, -negative, overlap, found)
        for (negative, doc_id, _, _, overlap), found in zip(ranked, values, strict=True)
    )
