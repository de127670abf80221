"""Number of documents that pass a threshold by count, ratio or weight, counted over whole shards at once.

A product of two sparse matrices, documents x terms and terms x queries, gives the number and the weight of the shared
terms of every pair; each threshold is a comparison with it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import sparse

from lsr_prod.search.query.sparse_query import SparseQuery, required_terms
from lsr_prod.search.shard.shard_reader import ShardReader
from lsr_prod.search.snapshot import Snapshot

WEIGHT_TOLERANCE = 1e-5  # of shares of a query's weight, whose float32 sums are rounded
_DOCUMENTS = 8192  # documents per product
_QUERIES = 200  # queries per product


@dataclass(frozen=True, slots=True)
class Threshold:
    """Condition on the shared terms of a query and a document; one shared term is always required."""

    # ``count``: number of shared terms; ``ratio``: share of the query's terms; ``weight``: share of the sum of
    # the query's weights
    kind: Literal["count", "ratio", "weight"]
    value: float  # smallest number or share

    def required(self, terms: int) -> int:
        """Return the number of terms that a document must share with a query; 1 for a weight."""
        if self.kind == "weight":
            return 1
        if self.kind == "count":
            return required_terms(terms, overlap_threshold=0.0, min_terms=int(self.value))
        return required_terms(terms, overlap_threshold=self.value, min_terms=1)


THRESHOLDS = (
    *(Threshold("count", value) for value in (1, 2, 3, 4)),
    *(Threshold("ratio", value) for value in (0.1, 0.2, 0.3, 0.4, 0.6)),
    *(Threshold("weight", value) for value in (0.1, 0.2, 0.3, 0.4, 0.6)),
)
"""Thresholds of a report."""


def count_matches(
    snapshot: Snapshot,
    queries: Sequence[SparseQuery],
    thresholds: Sequence[Threshold] = THRESHOLDS,
    *,
    sampled: int | None = None,
) -> npt.NDArray[np.int64]:
    """Count the documents that pass each threshold for each query.

    Returns:
        int64 [t, n].
    """
    starts = range(0, len(queries), _QUERIES)
    alive = sum(len(alive_ordinals(reader)) for reader in snapshot.readers.values()) if sampled is not None else 0
    step = 1 if sampled is None else max(1, -(-alive // sampled))
    parts = [_count(snapshot, queries[start : start + _QUERIES], thresholds, step) for start in starts]
    return np.concatenate([np.zeros((len(thresholds), 0), np.int64), *parts], axis=1)


def _count(
    snapshot: Snapshot, queries: Sequence[SparseQuery], thresholds: Sequence[Threshold], step: int
) -> npt.NDArray[np.int64]:
    size, n = len(snapshot.vocabulary.names), len(queries)
    ones, shares = _query_matrices(queries, size)
    required = np.array([[one.required(len(query.ids)) for query in queries] for one in thresholds], np.int64)
    matched = np.zeros((len(thresholds), n), np.int64)
    for reader in snapshot.readers.values():
        alive = alive_ordinals(reader)
        found = alive[::step]
        counted = np.zeros_like(matched)
        for start in range(0, len(found), _DOCUMENTS):
            offsets, terms, _ = reader.shard.forward.gather(found[start : start + _DOCUMENTS], reader.dk)
            cells = np.ones(len(terms))
            documents = sparse.csr_array((cells, terms.astype(np.int32), offsets), shape=(len(offsets) - 1, size))
            shared = documents @ ones  # [documents, queries], number of shared terms
            covered = documents @ shares  # the same pairs, share of the query's weight
            for i, threshold in enumerate(thresholds):
                if threshold.kind == "weight":
                    pairs = covered.indices[covered.data >= threshold.value - WEIGHT_TOLERANCE]
                else:
                    pairs = shared.indices[shared.data >= required[i][shared.indices]]
                counted[i] += np.bincount(pairs, minlength=n)
        matched += counted if step == 1 else np.rint(counted * (len(alive) / max(1, len(found)))).astype(np.int64)
    return matched


def alive_ordinals(reader: ShardReader) -> npt.NDArray[np.int64]:
    """Return the ordinals of the documents that are not deleted."""
    if reader.alive is None:
        return np.arange(reader.shard.manifest.documents)
    return np.flatnonzero(reader.alive)


def _query_matrices(queries: Sequence[SparseQuery], size: int) -> tuple[sparse.csr_array, sparse.csr_array]:
    """Return [V, n] matrices of ones and of shares of each query's weight; unknown terms count in the whole weight."""
    rows, columns, shares = [], [], []
    for i, query in enumerate(queries):
        known = query.ids >= 0
        rows.append(query.ids[known])
        columns.append(np.full(int(known.sum()), i))
        shares.append(query.weights[known] / query.weights.sum(dtype=np.float64))
    row, column = np.concatenate([np.zeros(0, np.int32), *rows]), np.concatenate([np.zeros(0, np.int64), *columns])
    values = np.concatenate([np.zeros(0), *shares])
    shape = (size, len(queries))
    return (
        sparse.csr_array((np.ones(len(row)), (row, column)), shape=shape),
        sparse.csr_array((values, (row, column)), shape=shape),
    )
