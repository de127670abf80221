"""Batches of vectors as arrays, in and out: for pipelines and evaluations, which need no result objects.

The terms of all queries follow each other; the GIL is released for the whole batch.
"""

import time
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from lsr_prod.errors import QueryError
from lsr_prod.search.index_snapshot import Snapshot
from lsr_prod.search.kernels import native
from lsr_prod.search.query.search_request import Request
from lsr_prod.search.query.sparse_query import MAX_SCORE, MAX_TERMS, SparseQuery, required_terms
from lsr_prod.search.shard.postings import DAMAGED, PARTIAL, UNVERIFIED, VectorBatch, damaged_arrays

_INVALID = -3  # state of the kernels: a query is not valid
_READ = frozenset(
    ("overlap_threshold", "min_terms", "qk", "filter", "min_score", "scan_share", "offset", "deadline_ms")
)
_DEFAULTS = Request()


@dataclass(frozen=True, slots=True)
class ArrayResult:
    """Hits of n queries, the best first; ties by rising id.

    Examples:
        >>> import numpy as np
        >>> from lsr_prod import Index
        >>> with Index.from_texts(["hold a lock", "parse a date"]) as searcher:
        ...     (query,) = searcher.encode(["a lock"])
        ...     arrays = np.array([0, len(query.ids)]), query.ids, query.weights
        ...     searcher.search_arrays(*arrays, k=1).doc_ids()
        [['0']]

    Attributes:
        scores: float32 [n, k], after ``offset`` hits; 0 after the last hit.
        documents: int64 [n, k], numbers of documents in the version, by shard and ordinal; -1 after the last hit.
        overlaps: uint16 [n, k], shared terms; 0 after the last hit.
        numbers: int64 [n], hits of each query after ``offset``.
        version: sha256 of the index version.
        partial: whether the deadline passed; better documents may exist.
        snapshot: the version, which ``doc_ids`` reads.
    """

    scores: np.typing.NDArray[np.float32]
    documents: np.typing.NDArray[np.int64]
    overlaps: np.typing.NDArray[np.uint16]
    numbers: np.typing.NDArray[np.int64]
    version: str
    partial: bool
    snapshot: Snapshot

    def doc_ids(self) -> list[list[str]]:
        """Return the ids of the hits of each query."""
        rows = zip(self.documents, self.numbers.tolist(), strict=True)
        return [_names(self.snapshot, row[:number]) for row, number in rows]


def check_array_request(request: Request, options: Iterable[str]) -> None:
    """Refuse options that arrays of scores and documents cannot answer."""
    for name in options:
        if name not in _READ and getattr(request, name) != getattr(_DEFAULTS, name):
            raise QueryError(
                f"search_arrays returns scores and documents only and does not support {name}; use search_vector, "
                f"or leave {name} out"
            )


def search_arrays(
    snapshot: Snapshot,
    offsets: np.typing.NDArray[np.int64],
    ids: np.typing.NDArray[np.int32],
    weights: np.typing.NDArray[np.float32],
    request: Request,
) -> ArrayResult:
    """Search one version for n vectors."""
    deadline = request.deadline(time.monotonic()) or 0.0
    batch = _checked(offsets, ids, weights)
    if request.qk is not None:
        batch = _heaviest(snapshot, batch, request.qk)
    queries, k = len(batch.offsets) - 1, request.reach
    expression = None if request.filter is None else snapshot.check_filter(request.filter)
    late = bool(deadline) and time.monotonic() >= deadline  # the kernel finds nothing
    masks = None
    if expression is not None and not late:
        masks = tuple(reader.allowed(expression) for reader in snapshot.readers.values())
    longest = len(batch.ids) if queries == 1 else int(np.diff(batch.offsets).max(initial=0))
    required = _required(longest, request.overlap_threshold, request.min_terms)
    documents = np.empty((queries, k), np.int64)
    documents.fill(-1)
    scores, overlaps = np.zeros((queries, k), np.float32), np.zeros((queries, k), np.uint16)
    numbers, first = np.zeros(queries, np.int64), 0
    while True:
        state, first, number, unverified = native.search_batch(
            snapshot.native,
            *batch,
            required,
            first,
            k,
            snapshot.version.dk,
            len(snapshot.vocabulary.names),
            request.min_score,
            request.scan_share,
            snapshot.version.impact_step,
            MAX_SCORE,
            deadline,
            masks,
            numbers,
            documents.reshape(-1),
            scores.reshape(-1),
            overlaps.reshape(-1),
            snapshot.starts,
        )
        if state != UNVERIFIED:
            break
        mine = slice(int(batch.offsets[first]), int(batch.offsets[first + 1]))
        snapshot.readers[number].verify(batch.ids[mine], unverified)
    if state == DAMAGED:
        raise damaged_arrays(snapshot.readers[number].shard.files)
    if state == _INVALID:
        raise _error(snapshot, first, batch)
    if request.offset:
        rows = slice(None), slice(request.offset, None)
        scores, documents, overlaps = map(np.ascontiguousarray, (scores[rows], documents[rows], overlaps[rows]))
        numbers = np.maximum(numbers - request.offset, 0)
    return ArrayResult(
        scores, documents, overlaps, numbers, snapshot.publication.version, late or state == PARTIAL, snapshot
    )


def _checked(
    offsets: np.typing.NDArray[np.int64], ids: np.typing.NDArray[np.int32], weights: np.typing.NDArray[np.float32]
) -> VectorBatch:
    """Return the arrays in the layout of the kernel."""
    given = (("offsets", offsets, np.int64), ("ids", ids, np.int32), ("weights", weights, np.float32))
    for name, array, dtype in given:
        if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype != dtype:
            raise QueryError(f"{name} is not a {np.dtype(dtype)} array of one dimension; convert it")
    if len(ids) != len(weights) or not len(offsets) or offsets[0] != 0 or offsets[-1] != len(ids):
        raise QueryError("offsets, ids and weights do not fit together; offsets begin with 0 and end with len(ids)")
    sizes = offsets[1:] if len(offsets) == 2 else np.diff(offsets)  # of one query it is what was checked above
    if len(sizes) and (len(ids) > MAX_TERMS or len(sizes) > 1) and (sizes.min() < 0 or sizes.max() > MAX_TERMS):
        raise QueryError(f"offsets fall, or a query has more than {MAX_TERMS} terms; give rising offsets")
    return VectorBatch(np.ascontiguousarray(offsets), np.ascontiguousarray(ids), np.ascontiguousarray(weights))


@lru_cache(256, typed=True)
def _required(largest: int, overlap_threshold: float, min_terms: int) -> np.typing.NDArray[np.int64]:
    found = [required_terms(n, overlap_threshold=overlap_threshold, min_terms=min_terms) for n in range(largest + 1)]
    return np.array([min(number, largest + 1) for number in found], np.int64)  # no query has more than its terms


def _heaviest(snapshot: Snapshot, batch: VectorBatch, qk: int) -> VectorBatch:
    """Return the ``qk`` heaviest terms of every query, ties by rising id."""
    offsets, ids, weights = batch
    sizes, qk = np.diff(offsets), min(qk, MAX_TERMS)
    query = np.repeat(np.arange(len(sizes)), sizes)
    _check_values(snapshot, batch, query)
    order = np.lexsort((ids, -weights, query))  # the terms of a query stay together
    kept = order[np.arange(len(ids)) - np.repeat(offsets[:-1], sizes) < qk]
    ends = np.cumsum(np.minimum(sizes, qk))
    return VectorBatch(np.concatenate(([0], ends)).astype(np.int64), ids[kept], weights[kept])


def _check_values(snapshot: Snapshot, batch: VectorBatch, query: np.typing.NDArray[np.int64]) -> None:
    """Validate terms as the kernel does, which does not see those that are left out."""
    offsets, ids, weights = batch
    wrong = ~np.isfinite(weights) | (weights < 0) | (ids < 0) | (ids >= len(snapshot.vocabulary.names))
    if not wrong.any():
        sums = np.bincount(query, weights, len(offsets) - 1) * snapshot.version.impact_step * 255
        wrong |= (sums > MAX_SCORE)[query]
        by_id = np.lexsort((weights <= 0, ids, query))
        same = (query[by_id][1:] == query[by_id][:-1]) & (ids[by_id][1:] == ids[by_id][:-1])
        wrong[by_id[1:][same & (weights[by_id][1:] > 0)]] = True
    if wrong.any():
        raise _error(snapshot, int(query[wrong].min()), batch)


def _names(snapshot: Snapshot, documents: np.typing.NDArray[np.int64]) -> list[str]:
    numbers, begins = list(snapshot.readers), snapshot.starts.tolist()  # an empty shard begins where the next one does
    found = []
    for document in documents.tolist():
        place = bisect_right(begins, document) - 1
        found.append(snapshot.readers[numbers[place]].shard.documents.doc_id(document - begins[place]))
    return found


def _error(snapshot: Snapshot, failed: int, batch: VectorBatch) -> QueryError:
    """Return what is wrong with a query."""
    mine = slice(int(batch.offsets[failed]), int(batch.offsets[failed + 1]))
    terms = batch.ids[mine].tolist()
    try:
        if len(set(terms)) < len(terms):
            raise QueryError("a term is given twice; give it once")
        vector = dict(zip(terms, batch.weights[mine].tolist(), strict=True))
        SparseQuery.from_vector(vector, snapshot.vocabulary).scaled(snapshot.version.impact_step)
    except QueryError as error:
        return QueryError(f"query {failed}: {error}")
    return QueryError(f"query {failed} is not valid; its possible score is above {MAX_SCORE:g}")
