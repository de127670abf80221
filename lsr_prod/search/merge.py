"""From the shards' best documents to the hits of an answer."""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from lsr_prod.search.hybrid import WeighedWords, fuse_ranks, with_words
from lsr_prod.search.part import ShardQuery
from lsr_prod.search.query import SparseQuery
from lsr_prod.search.request import Hybrid, Request
from lsr_prod.search.result import Hit

__all__ = ["Candidates", "Ranked", "Shards", "fetch_hits", "find_best", "find_by_words"]


# Negative score, id, shard, ordinal, overlap: it sorts by falling score, then by rising id. No class: an answer has up
# to 10,000, and making them is a part of matching.
Ranked = tuple[float, str, int, int, int]

_TINY = 1e-30  # below every score of a word, above zero in float32


@dataclass(frozen=True, slots=True)
class Candidates:
    """The best documents of some shards.

    Attributes:
        ranked: in no order across shards.
        matched: see ``SearchResult``, and so are the two after it.
        exact: whether ``matched`` is all.
        partial: the deadline passed.
    """

    ranked: Sequence[Ranked]
    matched: int
    exact: bool
    partial: bool

    @classmethod
    def join(cls, parts: "Sequence[Candidates]") -> "Candidates":
        """The candidates of all parts."""
        return cls(
            [row for part in parts for row in part.ranked],
            sum(part.matched for part in parts),
            all(part.exact for part in parts),
            any(part.partial for part in parts),
        )


class Shards(Protocol):
    """The shards of one version, wherever they are."""

    def match(self, query: ShardQuery) -> Candidates:
        """The best ``query.k`` documents of every shard."""

    def word_frequencies(self, names: Sequence[str]) -> npt.NDArray[np.int64]:
        """int64 [t]: documents of all shards whose text holds each word, deleted ones included."""

    def rescore(
        self, ranked: Sequence[Ranked], ids: npt.NDArray[np.int32], weights: npt.NDArray[np.float32]
    ) -> Sequence[Ranked]:
        """The same documents with scores of all stored terms, in any order."""

    def fields(self, ranked: Sequence[Ranked], names: Sequence[str]) -> Sequence[Mapping[str, Any]]:
        """Stored fields and attributes of documents, in their order."""


def find_best(
    shards: Shards,
    query: SparseQuery,
    request: Request,
    *,
    impact_step: float,
    deadline: float | None,
    words: WeighedWords | None = None,
) -> Candidates:
    """Match, merge across shards, rank again and deduplicate where asked.

    Args:
        shards: of one version.
        query: the whole query, before ``qk``.
        request: how.
        impact_step: weight of one impact unit.
        deadline: ``time.monotonic()`` after which to stop.
        words: of the query's text, for a hybrid search; None: there is none.

    Returns:
        The hits, sorted; the number of shards changes none of them, ties included.

    Raises:
        QueryError: a score could leave the range of float32, or the filter does not fit.
        ArtifactError: a shard is damaged.
    """
    wanted = request.k if request.rescore is None else request.rescore
    while True:
        found = _find(shards, query, request, words, wanted, impact_step, deadline)
        ranked = found.ranked
        if request.deduplicate is None:
            break
        values = shards.fields(ranked, [request.deduplicate])
        ranked = _distinct(ranked, [value[request.deduplicate] for value in values])
        # The next try asks for more: what was left out as a duplicate makes room.
        if len(ranked) >= request.k or len(found.ranked) < wanted or found.partial or request.rescore is not None:
            break
        wanted *= 2
    return Candidates(ranked[: request.k], found.matched, found.exact, found.partial)


def find_by_words(shards: Shards, words: WeighedWords, request: Request) -> Candidates:
    """The best documents by BM25 alone."""
    none = ShardQuery(
        np.empty(0, np.int32), np.empty(0, np.float32), np.empty(0, np.uint8), 1, request.k, exhaustive=request.count
    )
    found = shards.match(with_words(none, words, counted=True))
    return Candidates(heapq.nsmallest(request.k, found.ranked), found.matched, found.exact, found.partial)


def _find(
    shards: Shards,
    query: SparseQuery,
    request: Request,
    words: WeighedWords | None,
    wanted: int,
    impact_step: float,
    deadline: float | None,
) -> Candidates:
    weights = query.scaled(impact_step)
    first = query.top(request.qk)
    known = first.ids >= 0
    asked = ShardQuery(
        first.ids[known],
        weights[: len(first.ids)][known],
        np.ones(int(known.sum()), np.uint8),
        request.required(len(first.ids)),
        wanted,
        # The second step changes scores: the least score is that of the second.
        floor=request.min_score if request.rescore is None else 0.0,
        exhaustive=request.count,
        deadline=deadline,
        filter=request.filter,
    )
    if request.hybrid is not None and words is not None:
        if request.hybrid.fusion == "rrf":
            return _find_both(shards, asked, request, request.hybrid, words)
        asked = with_words(asked, words, request.hybrid, counted=not request.has_threshold)
    found = shards.match(asked)
    ranked = heapq.nsmallest(wanted, found.ranked)
    if request.rescore is not None:
        known = query.ids >= 0
        rescored = sorted(shards.rescore(ranked, query.ids[known], weights[known]))
        ranked = [row for row in rescored if -row[0] >= np.float32(request.min_score)]
    return Candidates(ranked, found.matched, found.exact, found.partial)


def _find_both(shards: Shards, asked: ShardQuery, request: Request, hybrid: Hybrid, words: WeighedWords) -> Candidates:
    """The best documents by terms and by words, fused; ``asked.k`` of them."""
    by_terms = replace(asked, k=hybrid.depth, floor=0.0)
    if request.has_threshold:
        # The terms stay for the threshold. What shares no word scores 0 and is no document of this list.
        by_words = with_words(
            replace(by_terms, floor=_TINY, weights=np.zeros_like(asked.weights)), words, counted=False
        )
    else:
        none = replace(by_terms, ids=asked.ids[:0], weights=asked.weights[:0], counted=asked.counted[:0])
        by_words = with_words(none, words, counted=True)
    found = [shards.match(query) for query in (by_terms, by_words)]
    lists = [heapq.nsmallest(hybrid.depth, one.ranked) for one in found]
    fused = fuse_ranks(lists[0], lists[1], hybrid, same_counts=request.has_threshold)
    fused = [row for row in fused if -row[0] >= request.min_score]
    matched, exact = found[0].matched, found[0].exact
    if not request.has_threshold:
        # A document may stand in both lists: only a scan of both counts it once.
        matched, exact = max(one.matched for one in found), False
        if request.count:
            counted = shards.match(with_words(replace(by_terms, k=0), words, counted=True))
            matched, exact = counted.matched, counted.exact
    return Candidates(fused[: asked.k], matched, exact, any(one.partial for one in found))


def _distinct(ranked: Sequence[Ranked], values: Iterable[Any]) -> list[Ranked]:
    """The first document of every value; those without a value stay."""
    seen, kept = set(), []
    for row, value in zip(ranked, values, strict=True):
        if value is None or value not in seen:
            seen.add(value)
            kept.append(row)
    return kept


def fetch_hits(shards: Shards, ranked: Sequence[Ranked], fields: Sequence[str]) -> tuple[Hit, ...]:
    """The hits with their stored fields."""
    values = shards.fields(ranked, fields) if fields else [{}] * len(ranked)
    return tuple(
        Hit(doc_id, -negative, overlap, found)
        for (negative, doc_id, _, _, overlap), found in zip(ranked, values, strict=True)
    )
