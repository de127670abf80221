"""Sparse vectors in memory, as an encoder returns them and a table stores them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


def put_together(
    starts: np.typing.NDArray[np.int64], lengths: np.typing.NDArray[np.int64]
) -> tuple[np.typing.NDArray[np.int64], np.typing.NDArray[np.int64]]:
    """Return the offsets of rows of a CSR matrix that are put next to each other, and the place of each of their items.

    Args:
        starts: int64 [n], where each row begins now.
        lengths: int64 [n], number of its items.
    """
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return offsets, np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)


def terms_of_mass(weights: np.typing.NDArray[np.float32], mass: float) -> int:
    """Return how many weights, the first of a falling list, hold the share ``mass`` of their sum: the fewest."""
    sums = np.cumsum(weights, dtype=np.float64)
    return min(int(np.searchsorted(sums, mass * sums[-1])) + 1, len(sums)) if len(sums) else 0


@dataclass(frozen=True, slots=True)
class SparseBatch:
    """``n`` sparse vectors over a vocabulary of ``V`` terms, as rows of a CSR matrix."""

    offsets: np.typing.NDArray[np.int64]  # int64 [n + 1]; row ``i`` is ``terms[offsets[i]:offsets[i + 1]]``
    # int32 [nnz], output-vocabulary ids; in a row by descending weight, ties by ascending id, no id twice
    terms: np.typing.NDArray[np.int32]
    weights: np.typing.NDArray[np.float32]  # float32 [nnz], every one finite and above zero

    def __len__(self) -> int:
        """The number of vectors."""
        return len(self.offsets) - 1

    def row(self, i: int) -> tuple[np.typing.NDArray[np.int32], np.typing.NDArray[np.float32]]:
        """Return terms and weights of vector ``i`` (views)."""
        start, stop = self.offsets[i], self.offsets[i + 1]
        return self.terms[start:stop], self.weights[start:stop]

    def dense(self, size: int) -> np.typing.NDArray[np.float32]:
        """Return the vectors as rows of ``size`` terms, [n, size]."""
        rows = np.zeros((len(self), size), np.float32)
        rows[np.repeat(np.arange(len(self)), np.diff(self.offsets)), self.terms] = self.weights
        return rows

    def top(self, k: int) -> "SparseBatch":
        """Return the vectors with their ``k`` heaviest terms."""
        offsets, keep = put_together(self.offsets[:-1], np.minimum(np.diff(self.offsets), k))
        return SparseBatch(offsets, self.terms[keep], self.weights[keep])

    def mass(self, share: float) -> "SparseBatch":
        """Return the vectors with the fewest terms that hold a share of their weight, heaviest first."""
        # One sum per row: a running sum of the batch would round by the vectors before it.
        kept = [terms_of_mass(self.row(i)[1], share) for i in range(len(self))]
        offsets, keep = put_together(self.offsets[:-1], np.array(kept, dtype=np.int64))
        return SparseBatch(offsets, self.terms[keep], self.weights[keep])

    @classmethod
    def from_topk(cls, terms: np.typing.NDArray[np.int64], weights: np.typing.NDArray[np.float32]) -> "SparseBatch":
        """Convert rows of fixed length, as the TopK of a graph returns them."""
        order = np.lexsort((terms, -weights), axis=1)
        terms, weights = np.take_along_axis(terms, order, 1), np.take_along_axis(weights, order, 1)
        active = weights > 0
        offsets = np.concatenate([[0], np.cumsum(active.sum(axis=1))]).astype(np.int64)
        return cls(offsets, terms[active].astype(np.int32), weights[active].astype(np.float32))

    @classmethod
    def concatenate(cls, batches: Sequence["SparseBatch"]) -> "SparseBatch":
        """Return one batch with the rows of all batches, in order."""
        lengths = np.concatenate([np.zeros(1, np.int64), *(np.diff(batch.offsets) for batch in batches)])
        return cls(
            np.cumsum(lengths).astype(np.int64),
            np.concatenate([np.zeros(0, np.int32), *(batch.terms for batch in batches)]),
            np.concatenate([np.zeros(0, np.float32), *(batch.weights for batch in batches)]),
        )

    def spread(self, places: Sequence[int], count: int) -> "SparseBatch":
        """Return ``count`` vectors: row ``i`` of this batch at ``places[i]``, empty vectors at all other places."""
        source = np.full(count, len(self), dtype=np.int64)  # the row after the last: an empty vector
        source[np.asarray(places, dtype=np.int64)] = np.arange(len(self))
        empty = SparseBatch(np.zeros(2, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32))
        return SparseBatch.concatenate([self, empty]).take(source)

    def take(self, order: np.typing.NDArray[np.int64]) -> "SparseBatch":
        """Return the rows ``order``, in that order."""
        offsets, keep = put_together(self.offsets[:-1][order], np.diff(self.offsets)[order])
        return SparseBatch(offsets, self.terms[keep], self.weights[keep])
