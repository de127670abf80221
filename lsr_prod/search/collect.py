"""Collect all matches of a query in the shards of one version: order by an attribute, and facet counts.

The matches of a shard are enumerated in windows of documents, so that memory is bounded for any number of matches.
"""

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsr_prod.errors import QueryError
from lsr_prod.search.candidates import Collected, CollectPlan, Ranked
from lsr_prod.search.query.filters import shorten
from lsr_prod.search.shard.postings import ShardQuery
from lsr_prod.search.shard.shard_reader import ShardReader
from lsr_prod.storage.formats.index import attribute_column
from lsr_prod.storage.formats.values import AttributeValue

WINDOW = 1 << 16  # documents whose matches are in memory at once
MAX_FACET_VALUES = 100_000  # distinct values of one facet
Counts = Counter[AttributeValue | None]
_Sorted = list[tuple[AttributeValue | None, Ranked]]


def collect_shards(readers: Mapping[int, ShardReader], query: ShardQuery, plan: CollectPlan) -> Collected:
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


def _collect(number: int, reader: ShardReader, query: ShardQuery, plan: CollectPlan) -> Collected:
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


def _count(column: pa.ChunkedArray, ordinals: npt.NDArray[np.int64]) -> dict[AttributeValue | None, int]:
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


def _order(values: pa.ChunkedArray, plan: CollectPlan) -> npt.NDArray[np.int64]:
    """Return the places of the first ``plan.k`` documents in the order of their values, ties by ordinal."""
    table = pa.table({"value": values, "rank": np.arange(len(values))})
    keys = [("value", "descending" if plan.descending else "ascending"), ("rank", "ascending")]
    order: npt.NDArray[np.int64] = pc.sort_indices(table, sort_keys=keys).to_numpy()  # nulls last
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
                f"facet {shorten(name)} has more than {MAX_FACET_VALUES} values among the matches; "
                "choose another attribute, or filter"
            )
