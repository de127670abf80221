"""Execute a query: from a request and a snapshot to a ``SearchResult``.

``execute_query`` matches all shards, fuses or rescores where the request says so, removes duplicates and fetches the
fields of the hits. The number of shards changes no hit, ties included, unless ``scan_share`` is below 1.
"""

import heapq
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lsr_prod.errors import QueryError
from lsr_prod.search.candidates import Candidates, Ranked, Shards, find_distinct
from lsr_prod.search.hybrid import WeighedWords, collect_matches, fuse_ranks, weigh_words, with_words
from lsr_prod.search.index_snapshot import Snapshot
from lsr_prod.search.query import filters, sparse_query
from lsr_prod.search.query.search_request import Hybrid, Request
from lsr_prod.search.search_result import Facet, Hit, QueryTerm, SearchResult
from lsr_prod.search.shard.postings import ShardQuery
from lsr_prod.storage.formats.index_format import Analyzer

_TINY = 1e-30  # below every score of a word, above zero in float32


def execute_query(
    snapshot: Snapshot,
    shards: Shards,
    query: sparse_query.SparseQuery,
    request: Request,
    *,
    encode_ms: float,
    text: str | None,
    deadline: float | None,
) -> SearchResult:
    """Search one version for a query."""
    if request.is_plain and isinstance(shards, Snapshot):
        return _execute_plain(shards, query.top(request.qk, request.query_mass), request, encode_ms, deadline)
    check_version(request, snapshot.publication.version)
    snapshot.check_fields(request.fields if request.deduplicate is None else [*request.fields, request.deduplicate])
    if request.highlight:
        snapshot.check_fields(request.highlight)
    if request.needs_all_matches:
        snapshot.check_attributes(request.facets)
        if request.sort is not None:
            snapshot.check_sort(request.sort.removeprefix("-"))
    if request.filter is not None:
        request = replace(request, filter=snapshot.check_filter(request.filter))
    start = time.perf_counter()
    words = None
    if request.hybrid is not None and text is not None:
        words = weigh_words(shards, snapshot.version, text, deadline)
    weights = query.scaled(snapshot.version.impact_step)
    kept = query.top(request.qk, request.query_mass)
    shard_query = _shard_query(kept, weights[: len(kept.ids)], request, deadline)
    found, facets = _search(shards, shard_query, query, weights, request, words)
    query_terms = tuple(map(QueryTerm, kept.terms, kept.weights.tolist()))
    if words is not None:
        query_terms += words.query_terms
    match_ms, start = milliseconds_since(start), time.perf_counter()
    page = select_page(found.ranked, request, partial=found.partial or bool(shards.missing_groups))
    if request.highlight:
        hits = _highlight(shards, page, request, text, kept.terms, snapshot.version.analyzer)
    else:
        hits = _fetch_hits(shards, page, request.fields)
    times = encode_ms, match_ms, milliseconds_since(start)
    result = _result(snapshot, shards, found, hits, query_terms, shard_query.required, times)
    exact, full = result.matched_exact and request.is_exact, len(page) == request.k and request.is_exact
    return result._replace(matched_exact=exact, offset=request.skipped, full=full, facets=facets)


def _execute_plain(
    snapshot: Snapshot, query: sparse_query.SparseQuery, request: Request, encode_ms: float, deadline: float | None
) -> SearchResult:
    """Search for a query of terms whose hits need no fields."""
    start = time.perf_counter()
    required = request.required(len(query.ids))
    hits, matched, partial, query_terms = snapshot.search(query, request, required, deadline)
    return SearchResult(
        hits,
        matched,
        request.is_exact and not partial,
        required,
        query_terms,
        snapshot.publication.version,
        partial,
        encode_ms,
        milliseconds_since(start),
        0.0,
        (),
        request.skipped,
        len(hits) == request.k and request.is_exact,
    )


def execute_bm25(snapshot: Snapshot, shards: Shards, text: str, request: Request) -> SearchResult:
    """Rank by BM25: from the postings if the index has words, else by Tantivy."""
    from lsr_prod.inference.terms.analysis import distinct_words

    snapshot.check_fields(request.fields)
    if not snapshot.version.text_fields:
        raise QueryError("this index has no text for BM25; build it with index.text_fields")
    start = time.perf_counter()
    if snapshot.version.average_length is None:
        names = distinct_words(text, snapshot.version.analyzer)
        found = snapshot.bm25(names, request.k)
        ranked, query_terms = found.ranked, tuple(QueryTerm(name, 1.0, "text") for name in names)
        shards = snapshot
    else:
        words = weigh_words(shards, snapshot.version, text)
        ids, weights, counted = np.empty(0, np.int32), np.empty(0, np.float32), np.empty(0, np.uint8)
        found = shards.match(with_words(ShardQuery(ids, weights, counted, 1, request.k), words, counted=True))
        ranked, query_terms = heapq.nsmallest(request.k, found.ranked), words.query_terms
    match_ms, start = milliseconds_since(start), time.perf_counter()
    hits = _fetch_hits(shards, ranked, request.fields)
    return _result(snapshot, shards, found, hits, query_terms, 1, (0.0, match_ms, milliseconds_since(start)))


def _result(
    snapshot: Snapshot,
    shards: Shards,
    found: Candidates,
    hits: tuple[Hit, ...],
    query_terms: tuple[QueryTerm, ...],
    required: int,
    times: tuple[float, float, float],
) -> SearchResult:
    missing = tuple(sorted(shards.missing_groups))
    exact, partial = found.exact and not missing, found.partial or bool(missing)
    version = snapshot.publication.version
    return SearchResult(hits, found.matched, exact, required, query_terms, version, partial, *times, missing)


def _search(
    shards: Shards,
    shard_query: ShardQuery,
    query: sparse_query.SparseQuery,
    weights: np.typing.NDArray[np.float32],
    request: Request,
    words: WeighedWords | None,
) -> tuple[Candidates, tuple[Facet, ...]]:
    """Match, rescore and deduplicate; return the ranked documents, and the facets of all matches."""
    collected: Candidates | None = None
    facets: tuple[Facet, ...] = ()
    if request.needs_all_matches:
        collected, facets = collect_matches(shards, shard_query, request, words)
        if request.sort is not None:
            return collected, facets

    def find(shard_query: ShardQuery) -> Candidates:
        found = _match(shards, shard_query, request, words)
        if request.rescore is None:
            return found
        # Rank again by the whole query and all stored terms of the documents.
        known = query.ids >= 0
        rescored = sorted(shards.rescore(found.ranked, query.ids[known], weights[known]))
        return replace(found, ranked=[row for row in rescored if -row[0] >= np.float32(request.min_score)])

    found = find(shard_query) if request.deduplicate is None else find_distinct(find, shards, shard_query, request)
    if collected is None:
        return found, facets
    return Candidates(found.ranked, collected.matched, collected.exact, found.partial or collected.partial), facets


def milliseconds_since(start: float) -> float:
    """Return the milliseconds since ``start``, a ``time.perf_counter()``."""
    return (time.perf_counter() - start) * 1e3


def _shard_query(
    kept: sparse_query.SparseQuery, weights: np.typing.NDArray[np.float32], request: Request, deadline: float | None
) -> ShardQuery:
    ids = kept.ids
    if len(ids) and ids.min() < 0:  # terms outside the vocabulary
        ids, weights = ids[ids >= 0], weights[ids >= 0]
    return ShardQuery(
        ids,
        weights,
        np.ones(len(ids), np.uint8),
        request.required(len(kept.ids)),
        request.reach if request.rescore is None else request.rescore,
        # Rescoring changes scores, so min_score applies after it.
        floor=request.min_score if request.rescore is None else 0.0,
        scan_share=request.scan_share,
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


def _fetch_hits(shards: Shards, ranked: Sequence[Ranked], fields: Sequence[str]) -> tuple[Hit, ...]:
    """Return the hits with their fields, without those of shard groups that went missing."""
    values: Sequence[Mapping[str, Any] | None] = shards.fields(ranked, fields) if fields else [{}] * len(ranked)
    return tuple(
        [
            Hit(doc_id, -negative, overlap, found)
            for (negative, doc_id, _, _, overlap), found in zip(ranked, values, strict=True)
            if found is not None
        ]
    )


def _highlight(
    shards: Shards,
    ranked: Sequence[Ranked],
    request: Request,
    text: str | None,
    terms: Sequence[str],
    analyzer: Analyzer,
) -> tuple[Hit, ...]:
    """Return the hits with their fields, and the places of the query's words in the fields of ``highlight``."""
    from lsr_prod.search.highlight import highlight_fields, words_to_find  # imports Tantivy

    wanted = words_to_find(text, terms, analyzer)
    return tuple(
        hit._replace(
            fields={name: hit.fields[name] for name in request.fields},
            highlights=highlight_fields(hit.fields, request.highlight, wanted, analyzer),
        )
        for hit in _fetch_hits(shards, ranked, [*dict.fromkeys([*request.fields, *request.highlight])])
    )


def check_version(request: Request, version: str) -> None:
    """Raise ``QueryError`` if the page before comes from another version."""
    cursor = request.cursor
    if cursor is not None and cursor.version != version:
        raise QueryError(
            f"search_after is from version {filters.shorten(cursor.version)}, but {filters.shorten(version)} is open "
            "now; start again with the first page"
        )


def select_page(ranked: Sequence[Ranked], request: Request, *, partial: bool) -> Sequence[Ranked]:
    """Return the hits of the page out of all ranked documents."""
    cursor = request.cursor
    if cursor is None:
        return ranked[request.offset : request.reach]
    for place, row in enumerate(ranked):
        if row[1] == cursor.doc_id:
            return ranked[place + 1 : place + 1 + request.k]
    if not partial:
        raise QueryError("search_after belongs to another query; give the query and the options of the page before")
    if request.sort is not None:
        return []
    return [row for row in ranked if row[:2] > (-cursor.score, cursor.doc_id)][: request.k]
