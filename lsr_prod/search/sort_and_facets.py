"""Requests that need all matches: hits sorted by an attribute, and facets."""

from collections.abc import Mapping
from dataclasses import replace

from lsr_prod.formats.attributes import AttributeValue
from lsr_prod.search.candidates import Candidates, CollectPlan, Shards
from lsr_prod.search.hybrid import WeighedWords, with_words
from lsr_prod.search.query.request import Request
from lsr_prod.search.result import Facet
from lsr_prod.search.shard.shard_query import ShardQuery


def collect_matches(
    shards: Shards, query: ShardQuery, request: Request, words: WeighedWords | None
) -> tuple[Candidates, tuple[Facet, ...]]:
    """Enumerate all matches of a request that has ``sort`` or ``facets``.

    Returns:
        The first ``request.reach`` documents in the order of ``sort``, none without it; and the facets.
    """
    if request.hybrid is not None and words is not None:
        fused = request.hybrid.fusion == "rrf"  # min_score is then one of fused ranks, which only the best have
        query = replace(query, floor=0.0) if fused else query
        query = with_words(query, words, None if fused else request.hybrid, counted=not request.has_threshold)
    name = None if request.sort is None else request.sort.removeprefix("-")
    plan = CollectPlan(request.reach, name, name != request.sort, tuple(request.facets))
    found = shards.collect(query, plan)
    facets = tuple(
        _facet(name, counts, request.facet_size) for name, counts in zip(plan.facets, found.counts, strict=True)
    )
    ranked = [row for _, row in found.ranked]
    return Candidates(ranked, found.matched, not found.partial, found.partial), facets


def _facet(name: str, counts: Mapping[AttributeValue | None, int], size: int) -> Facet:
    known = [(value, count) for value, count in counts.items() if value is not None]
    known.sort()
    known.sort(key=lambda item: -item[1])
    return Facet(name, tuple(known[:size]), counts.get(None, 0), len(known))
