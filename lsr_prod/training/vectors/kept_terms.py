"""Vectors of which only the heaviest terms are left: ids and weights, in place of a copy as wide as the vocabulary."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lsr_prod.training.parallel import collective
from lsr_prod.training.vectors.heaviest_terms import heaviest_terms

__all__ = ["KeptTerms", "Prunable", "Vectors", "active_terms", "all_vectors", "cut", "keep_terms"]


@dataclass(frozen=True, slots=True)
class KeptTerms:
    """The heaviest terms of B vectors.

    Attributes:
        terms: int64 [B, k], rising in a row, no id twice.
        weights: [B, k], the gradient passes through those above 0; 0 where a vector has fewer than k terms.
        vocabulary_size: V.
    """

    terms: Tensor
    weights: Tensor
    vocabulary_size: int

    def __len__(self) -> int:
        """The number of vectors."""
        return len(self.terms)

    def __getitem__(self, rows: slice) -> "KeptTerms":
        """Some of the vectors."""
        return KeptTerms(self.terms[rows], self.weights[rows], self.vocabulary_size)

    def top(self, k: int) -> "KeptTerms":
        """The ``k`` heaviest of them; ties go to the lower id."""
        if k >= self.terms.shape[1]:
            return self
        places, _ = heaviest_terms(self.weights.detach(), k)
        return KeptTerms(self.terms.gather(1, places), self.weights.gather(1, places), self.vocabulary_size)

    def dense(self) -> Tensor:
        """[B, V]."""
        rows = self.weights.new_zeros(len(self), self.vocabulary_size)
        return rows.scatter(1, self.terms, self.weights)


Vectors = Tensor | KeptTerms
"""B vectors over the vocabulary: [B, V], or the heaviest terms of each."""


def keep_terms(vectors: Vectors, k: int) -> KeptTerms:
    """The ``k`` heaviest terms of every vector, ties to the lower id.

    Args:
        vectors: B vectors, at least 0.
        k: 1 or more; above V it is V.
    """
    if isinstance(vectors, KeptTerms):
        return vectors.top(k)
    terms, weights = heaviest_terms(vectors.detach(), min(k, vectors.shape[1]))
    gathered = torch.where(weights > 0, vectors.gather(1, terms), 0.0)
    return KeptTerms(terms, gathered, vectors.shape[1])


def cut(vectors: Vectors, k: int | None) -> Vectors:
    """The ``k`` heaviest terms; the vectors as they are where ``k`` is 0, None or as many as there are."""
    return vectors if not k or k >= _width(vectors) else keep_terms(vectors, k)


class Prunable:
    """Vectors that are needed cut to several sizes: they are searched for their heaviest terms once.

    Args:
        vectors: B vectors, at least 0.
        sizes: every size that will be asked for; 0 and None are all terms.
    """

    def __init__(self, vectors: Vectors, sizes: Iterable[int | None]) -> None:
        self._whole = vectors
        self._heaviest = cut(vectors, max((size for size in sizes if size and size < _width(vectors)), default=0))

    def keep(self, k: int | None) -> Vectors:
        """The ``k`` heaviest terms; 0 and None: the vectors as they are."""
        return self._whole if not k or k >= _width(self._whole) else cut(self._heaviest, k)


def all_vectors(vectors: Vectors, counts: Sequence[int]) -> Vectors:
    """The vectors of all workers in rank order, as ``collective.all_rows``; of kept terms only these travel.

    Args:
        vectors: this worker's.
        counts: how many every worker has.
    """
    if isinstance(vectors, Tensor):
        return collective.all_rows(vectors, counts)
    terms = collective.all_rows(vectors.terms, counts)
    return KeptTerms(terms, collective.all_rows(vectors.weights, counts), vectors.vocabulary_size)


def active_terms(rows: Vectors) -> Tensor:
    """Return the number of terms with a weight above 0, int64 [B]."""
    weights = rows if isinstance(rows, Tensor) else rows.weights
    return torch.count_nonzero(weights.detach(), dim=1)


def _width(vectors: Vectors) -> int:
    return (vectors if isinstance(vectors, Tensor) else vectors.terms).shape[1]
