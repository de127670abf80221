"""Vectors pruned to their heaviest terms, stored as ids and weights instead of dense rows."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lsr_prod.training.parallel import collective
from lsr_prod.training.vectors.heaviest_terms import heaviest_terms


@dataclass(frozen=True, slots=True)
class KeptTerms:
    """The heaviest terms of B vectors."""

    terms: Tensor  # int64 [B, k], strictly increasing within a row
    weights: Tensor  # [B, k]; weights above 0 pass the gradient; 0 fills up vectors with fewer than k terms
    vocabulary_size: int  # V
    # bool [B, k], terms that a gradient reaches, at any weight; None: those with a weight above 0
    reached: Tensor | None = None

    def __len__(self) -> int:
        """Return the number of vectors."""
        return len(self.terms)

    def __getitem__(self, rows: slice) -> "KeptTerms":
        """Return a slice of the vectors."""
        reached = None if self.reached is None else self.reached[rows]
        return KeptTerms(self.terms[rows], self.weights[rows], self.vocabulary_size, reached)

    def top(self, k: int) -> "KeptTerms":
        """Return the ``k`` heaviest of these terms; ties go to the lower id."""
        if k >= self.terms.shape[1]:
            return self
        places, _ = heaviest_terms(self.weights.detach(), k)
        return KeptTerms(self.terms.gather(1, places), self.weights.gather(1, places), self.vocabulary_size)

    def dense(self) -> Tensor:
        """Return dense rows, [B, V]."""
        rows = self.weights.new_zeros(len(self), self.vocabulary_size)
        return rows.scatter(1, self.terms, self.weights)


Vectors = Tensor | KeptTerms
"""B vectors over the vocabulary: [B, V], or the heaviest terms of each."""


def weights_of(vectors: Vectors) -> Tensor:
    """Return the stored weights, [B, V] or [B, k]."""
    return vectors if isinstance(vectors, Tensor) else vectors.weights


def keep_terms(vectors: Vectors, k: int) -> KeptTerms:
    """Return the ``k`` heaviest terms of every vector; ties go to the lower id."""
    if isinstance(vectors, KeptTerms):
        return vectors.top(k)
    terms, weights = heaviest_terms(vectors.detach(), min(k, vectors.shape[1]))
    gathered = torch.where(weights > 0, vectors.gather(1, terms), 0.0)
    return KeptTerms(terms, gathered, vectors.shape[1])


def cut(vectors: Vectors, k: int | None) -> Vectors:
    """Prune to the ``k`` heaviest terms; return the vectors unchanged if ``k`` is 0, None or not below their width."""
    return vectors if not k or k >= _width(vectors) else keep_terms(vectors, k)


class Prunable:
    """Vectors that are pruned to several sizes with a single search for their heaviest terms."""

    def __init__(self, vectors: Vectors, sizes: Iterable[int | None]) -> None:
        self._whole = vectors
        self._heaviest = cut(vectors, max((size for size in sizes if size and size < _width(vectors)), default=0))

    def keep(self, k: int | None) -> Vectors:
        """Return the ``k`` heaviest terms; for 0 and None, the whole vectors."""
        return self._whole if not k or k >= self.width else cut(self._heaviest, k)

    @property
    def width(self) -> int:
        """Number of terms per vector before pruning: V, or that of vectors that are pruned already."""
        return _width(self._whole)

    def heaviest(self, k: int) -> KeptTerms:
        """Return the ``k`` heaviest terms, or all if there are fewer, as ids and weights; k is a requested size."""
        return keep_terms(self._heaviest if k < self.width else self._whole, k)


def all_vectors(vectors: Vectors, counts: Sequence[int]) -> Vectors:
    """Return the vectors of all workers in rank order, like ``collective.all_rows``; pruned vectors are sent pruned."""
    if isinstance(vectors, Tensor):
        return collective.all_rows(vectors, counts)
    terms, weights = collective.all_rows(vectors.terms, counts), collective.all_rows(vectors.weights, counts)
    reached = None if vectors.reached is None else collective.all_rows(vectors.reached.byte(), counts).bool()
    return KeptTerms(terms, weights, vectors.vocabulary_size, reached)


def active_terms(rows: Vectors) -> Tensor:
    """Return the number of terms with a weight above 0, int64 [B]."""
    return torch.count_nonzero(weights_of(rows).detach(), dim=1)


def _width(vectors: Vectors) -> int:
    return weights_of(vectors).shape[1]
