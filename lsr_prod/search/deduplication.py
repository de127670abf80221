"""Deduplication: the best document of every value of a field, and all documents without a value.

Duplicates take the places of other documents, so rounds of more and more documents follow until enough are distinct.
A round that the deadline ends early is merged with the complete round before it.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from lsr_prod.search.candidates import Candidates, Ranked, Shards
from lsr_prod.search.query.request import Request
from lsr_prod.search.query.sparse_query import MAX_K
from lsr_prod.search.shard.shard_query import ShardQuery

_GROWTH = 4  # of k from round to round: two more rounds are enough for most collections
_READ = 512  # documents whose values are read at once, between two checks of the deadline


def find_distinct(
    find: Callable[[ShardQuery], Candidates], shards: Shards, query: ShardQuery, request: Request
) -> Candidates:
    """Return the best distinct documents, sorted; at least ``request.reach`` of them if the list has so many.

    The list ends after ``rescore`` documents, after both lists of ``rrf``, or after 10,000 documents.
    """
    limit = _list_end(request)
    if request.rescore is not None or limit < MAX_K:
        query = replace(query, k=limit)  # one round costs as much as several
    values = _Values(shards, request.deduplicate or "")
    before: Candidates | None = None
    while True:
        found = find(query)
        if before is not None:
            found = _continued(before, found)
        kept, complete = values.first_of_each(found.ranked, request.reach, query.deadline)
        enough = len(kept) >= request.reach or len(found.ranked) < query.k or query.k >= limit
        if enough or found.partial or not complete:
            return replace(found, ranked=kept, partial=found.partial or not complete)
        before = found
        query = replace(query, k=min(_GROWTH * query.k, limit), exhaustive=query.exhaustive and not found.exact)


def _list_end(request: Request) -> int:
    """Return the number of documents after which the list of all hits ends."""
    if request.rescore is not None:
        return request.rescore
    if request.hybrid is not None and request.hybrid.fusion == "rrf":
        return min(2 * request.hybrid.depth, MAX_K)
    return MAX_K


def _continued(before: Candidates, found: Candidates) -> Candidates:
    """Return a round with what is known from the complete round before it."""
    ranked = sorted({*before.ranked, *found.ranked}) if found.partial else found.ranked
    if before.exact:
        return Candidates(ranked, before.matched, True, found.partial)
    return Candidates(ranked, max(before.matched, found.matched), found.exact, found.partial)


class _Values:
    """Values of one field, each read once."""

    def __init__(self, shards: Shards, name: str) -> None:
        self._shards = shards
        self._name = name
        self._known: dict[tuple[int, int], Any] = {}  # by shard and ordinal

    def first_of_each(self, ranked: Sequence[Ranked], wanted: int, deadline: float | None) -> tuple[list[Ranked], bool]:
        """Return the first ``wanted`` distinct documents, and False if the deadline passed before all were compared.

        The first documents of the first round are compared even after the deadline.
        """
        seen: set[Any] = set()
        kept: list[Ranked] = []
        for start in range(0, len(ranked), _READ):
            rows = ranked[start : start + _READ]
            unknown = [row for row in rows if row[2:4] not in self._known]
            if unknown and self._known and deadline is not None and time.monotonic() >= deadline:
                return kept, False
            for row, fields in zip(unknown, self._shards.fields(unknown, [self._name]), strict=True):
                self._known[row[2:4]] = _Missing if fields is None else fields[self._name]
            for row in rows:
                value = self._known[row[2:4]]
                if value is _Missing or value in seen:
                    continue
                if value is not None:
                    seen.add(value)
                kept.append(row)
            if len(kept) >= wanted:
                break
        return kept, True


class _Missing:
    """The value of a document of a missing group."""
