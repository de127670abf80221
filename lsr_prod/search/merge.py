"""From the shards' best documents to the hits of an answer."""

import heapq
from collections.abc import Iterable, Sequence

from lsr_prod.search.result import Hit
from lsr_prod.search.shard import OpenShard

__all__ = ["Ranked", "fetch_hits", "merge_shards"]


# Negative score, id, shard, ordinal, overlap: it sorts by falling score, then by rising id. No class: an answer has up
# to 10,000, and making them is a part of matching.
Ranked = tuple[float, str, int, int, int]


def merge_shards(shards: Sequence[OpenShard], found: Iterable[tuple[float, int, int, int]], k: int) -> list[Ranked]:
    """The best ``k`` over all shards; the number of shards changes no answer, ties included.

    Args:
        shards: the version's shards.
        found: score, shard, ordinal and overlap of each shard's best ``k``.
        k: documents wanted.
    """
    ranked = ((-score, shards[n].doc_id(ordinal), n, ordinal, overlap) for score, n, ordinal, overlap in found)
    return heapq.nsmallest(k, ranked) if len(shards) > 1 else sorted(ranked)


def fetch_hits(shards: Sequence[OpenShard], ranked: Iterable[Ranked], fields: Sequence[str]) -> tuple[Hit, ...]:
    """The hits with their stored fields."""
    return tuple(
        Hit(doc_id, -negative, overlap, shards[shard].fields(ordinal, fields) if fields else {})
        for negative, doc_id, shard, ordinal, overlap in ranked
    )
