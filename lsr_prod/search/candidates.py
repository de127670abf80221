"""The best documents of some shards, or all matches in the order of an attribute, before they become hits.

``find_distinct`` keeps the best document of every value of a field, and all documents without a value. Duplicates take
the places of other documents, so rounds of more and more documents follow until enough are distinct. A round that the
deadline ends early is merged with the complete round before it.

``collect_shards`` enumerates the matches of a shard in windows of documents, so that memory is bounded for any number
of matches.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsr_prod.errors import QueryError
from lsr_prod.search.query import filters, search_request, sparse_query
from lsr_prod.search.shard import postings, shard_reader
from lsr_prod.storage.formats.index_format import attribute_column
from lsr_prod.storage.formats.stored_values import AttributeValue

# Negative score, id, shard, ordinal, overlap: sorts by falling score, then by rising id. A tuple, not a class: a result
# has up to 10,000 of them, and creating them is part of the matching time.
Ranked = tuple[float, str, int, int, int]
Counts = Counter[AttributeValue | None]
_Sorted = list[tuple[AttributeValue | None, Ranked]]

WINDOW = 1 << 16  # documents whose matches are in memory at once
MAX_FACET_VALUES = 100_000  # distinct values of one facet
_GROWTH = 4  # of k from round to round: two more rounds are enough for most collections
_READ = 512  # documents whose values are read at once, between two checks of the deadline


@dataclass(frozen=True, slots=True)
class Candidates:
    """The best documents of some shards."""

    ranked: Sequence[Ranked]  # the documents, in no order across shards
    matched: int  # as in ``SearchResult``
    exact: bool  # whether ``matched`` counts all matching documents
    partial: bool  # whether the deadline passed

    @classmethod
    def join(cls, parts: "Sequence[Candidates]") -> "Candidates":
        """Return the candidates of all parts together."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            [row for part in parts for row in part.ranked],
            sum(part.matched for part in parts),
            all(part.exact for part in parts),
            any(part.partial for part in parts),
        )


@dataclass(frozen=True, slots=True)
class CollectPlan:
    """Values to collect of all matches of a query."""

    k: int  # number of documents to return in the order of ``sort``
    # attribute that orders them; documents without a value come last, ties by rising id; None: no documents
    sort: str | None
    descending: bool  # largest value first
    facets: tuple[str, ...]  # attributes whose values are counted


@dataclass(frozen=True, slots=True)
class Collected:
    """Values of all matches in some shards."""

    # value of ``sort`` and document, for the first documents in its order
    ranked: Sequence[tuple[AttributeValue | None, Ranked]]
    # for every facet, matches by value; None is the value of documents that have none
    counts: Sequence[Mapping[AttributeValue | None, int]]
    matched: int  # number of matches, those below ``floor`` included
    partial: bool  # whether the deadline passed


class Shards(Protocol):
    """All shards of one version, in this process or in others."""

    @property
    def missing_groups(self) -> Collection[int]:
        """Shard groups that did not answer the calls so far; none in this process."""

    def match(self, query: postings.ShardQuery) -> Candidates:
        """Return the best ``query.k`` documents of every shard."""

    def collect(self, query: postings.ShardQuery, plan: CollectPlan) -> Collected:
        """Enumerate all matches of a query: the first of them in the order of an attribute, and facet counts."""

    def word_frequencies(self, names: Sequence[str], deadline: float | None = None) -> np.typing.NDArray[np.int64]:
        """Return int64 [t]: documents of all shards whose text contains each word, deleted documents included.

        After the deadline, a ``time.monotonic()``, words are no longer counted.
        """

    def rescore(
        self, ranked: Sequence[Ranked], ids: np.typing.NDArray[np.int32], weights: np.typing.NDArray[np.float32]
    ) -> Sequence[Ranked]:
        """Return the same documents with scores of all stored terms, in any order."""

    def fields(self, ranked: Sequence[Ranked], names: Sequence[str]) -> Sequence[Mapping[str, Any] | None]:
        """Return stored fields and attributes of documents, in their order; None for those of a missing group."""


def find_distinct(
    find: Callable[[postings.ShardQuery], Candidates],
    shards: Shards,
    query: postings.ShardQuery,
    request: search_request.Request,
) -> Candidates:
    """Return the best distinct documents, sorted; at least ``request.reach`` of them if the list has so many.

    The list ends after ``rescore`` documents, after both lists of ``rrf``, or after 10,000 documents.
    """
    limit = _list_end(request)
    if request.rescore is not None or limit < sparse_query.MAX_K:
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
        query = replace(query, k=min(_GROWTH * query.k, limit))


def collect_shards(
    readers: Mapping[int, shard_reader.ShardReader], query: postings.ShardQuery, plan: CollectPlan
) -> Collected:
    """Collect all matches of some shards, by number of the shard."""
    return merge_collected((_collect(number, reader, query, plan) for number, reader in readers.items()), plan)


def merge_collected(parts: Iterable[Collected], plan: CollectPlan) -> Collected:
    """Return what was collected in all parts together."""
    ranked: _Sorted = []
    counts = [Counts() for _ in plan.facets]
    matched, partial = 0, False
    for part in parts:
        ranked = _first([*ranked, *part.ranked], plan)
        for total, more in zip(counts, part.counts, strict=True):
            total.update(more)
        _check_counts(counts, plan)
        matched, partial = matched + part.matched, partial or part.partial
    return Collected(ranked, counts, matched, partial)


def _list_end(request: search_request.Request) -> int:
    """Return the number of documents after which the list of all hits ends."""
    if request.rescore is not None:
        return request.rescore
    if request.hybrid is not None and request.hybrid.fusion == "rrf":
        return min(2 * request.hybrid.depth, sparse_query.MAX_K)
    return sparse_query.MAX_K


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
                value = tuple(value) if isinstance(value, list) else value
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


def _collect(number: int, reader: shard_reader.ShardReader, query: postings.ShardQuery, plan: CollectPlan) -> Collected:
    """Collect all matches of one shard; none, if the deadline has passed."""
    if query.deadline is not None and time.monotonic() >= query.deadline:
        return Collected([], [Counts() for _ in plan.facets], 0, True)
    documents, allowed = reader.shard.documents, reader.allowed(query.filter)
    names = [attribute_column(name) for name in (*plan.facets, *([] if plan.sort is None else [plan.sort]))]
    documents.verify_columns(names)
    columns = [documents.column(name) for name in names]
    query = reader.with_words(query)
    marks, partial = reader.shard.postings.mark(query, allowed=allowed)
    ranked, counts, matched = _Sorted(), [Counts() for _ in plan.facets], int(np.count_nonzero(marks))
    for start in range(0, len(marks), WINDOW):
        ordinals = start + np.flatnonzero(marks[start : start + WINDOW])
        scores, overlaps = np.zeros(0, np.float32), np.zeros(0, np.uint16)
        if query.floor or plan.sort is not None:
            scores, overlaps = reader.score(query, ordinals)
            reached = scores >= np.float32(query.floor)
            ordinals, scores, overlaps = ordinals[reached], scores[reached], overlaps[reached]
        for total, column in zip(counts, columns, strict=False):
            total.update(_count(column, ordinals))
        _check_counts(counts, plan)
        if plan.sort is not None and plan.k:
            places = _order(columns[-1].take(ordinals), plan)
            values = columns[-1].take(ordinals[places]).to_pylist()
            rows = [
                (-float(scores[at]), documents.doc_id(int(ordinals[at])), number, int(ordinals[at]), int(overlaps[at]))
                for at in places.tolist()
            ]
            ranked = _first([*ranked, *zip(values, rows, strict=True)], plan)
        if query.deadline is not None and time.monotonic() >= query.deadline:
            partial = True
            break
    return Collected(ranked, counts, matched, partial)


def _count(column: pa.ChunkedArray, ordinals: np.typing.NDArray[np.int64]) -> dict[AttributeValue | None, int]:
    """Return the number of documents by value; of lists, a document counts once for each of its values."""
    taken = column.take(np.sort(ordinals))
    if pa.types.is_list(taken.type):
        lists = taken.combine_chunks()
        pairs = pa.table({"row": pc.list_parent_indices(lists), "value": pc.list_flatten(lists)})
        pairs = pairs.group_by(["row", "value"]).aggregate([])
        empty = len(lists) - pc.count_distinct(pairs["row"]).as_py()
        taken = pa.chunked_array([*pairs["value"].chunks, pa.nulls(empty, taken.type.value_type)])
    found = pc.value_counts(taken)
    values, counts = found.field("values").to_pylist(), found.field("counts").to_pylist()
    return dict(zip(values, counts, strict=True))


def _order(values: pa.ChunkedArray, plan: CollectPlan) -> np.typing.NDArray[np.int64]:
    """Return the places of the first ``plan.k`` documents in the order of their values, ties by ordinal."""
    table = pa.table({"value": values, "rank": np.arange(len(values))})
    keys = [("value", "descending" if plan.descending else "ascending"), ("rank", "ascending")]
    order: np.typing.NDArray[np.int64] = pc.sort_indices(table, sort_keys=keys).to_numpy()  # nulls last
    return order[: plan.k].astype(np.int64)


def _first(found: _Sorted, plan: CollectPlan) -> _Sorted:
    """Return the first ``plan.k`` documents in the order of the plan."""
    found.sort(key=lambda item: item[1][1])
    known = [item for item in found if item[0] is not None]
    known.sort(key=lambda item: item[0], reverse=plan.descending)  # type: ignore[arg-type, return-value]
    return [*known, *(item for item in found if item[0] is None)][: plan.k]


def _check_counts(counts: Sequence[Counts], plan: CollectPlan) -> None:
    for name, values in zip(plan.facets, counts, strict=True):
        if len(values) - (None in values) > MAX_FACET_VALUES:
            raise QueryError(
                f"facet {filters.shorten(name)} has more than {MAX_FACET_VALUES} values among the matches; "
                "choose another attribute, or filter"
            )
