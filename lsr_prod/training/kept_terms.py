"""Vectors pruned to their heaviest terms, stored as ids and weights instead of dense rows.

Straight-through pruning: the heaviest terms in the forward pass, also terms near the boundary in the backward pass.

Pruning to k terms gives no gradient to the term of rank k + 1, so training reweighs the kept terms and hardly chooses
others. Here the gradient of the pruned weight of a term is multiplied by ``sigmoid((weight - k-th weight) /
temperature)`` and passed on, for kept terms and for the next ones by weight (an extension of ours; no paper states it).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from lsr_prod.config.objective import PruningSettings
from lsr_prod.model import pooled_head
from lsr_prod.training import process_group

_ROWS = 64  # rows with ties per batch


@torch.no_grad()
def heaviest_terms(weights: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids and weights [B, k] of the heaviest terms of every row, by increasing id; ties go to the lower id.

    Rows with fewer active terms are filled up with inactive terms of weight 0.
    """
    if not pooled_head.are_free(weights.device):  # whether rows have ties is unknown to the host: a stable sort of all
        terms = weights.sort(dim=1, descending=True, stable=True).indices[:, :k].sort(dim=1).values
        return terms, weights.gather(1, terms)
    values, terms = weights.topk(k, dim=1, sorted=False)
    least = values.amin(dim=1, keepdim=True)
    surplus = ((weights >= least).sum(dim=1) > k) & (least[:, 0] > 0)
    for rows in torch.split(surplus.nonzero()[:, 0], _ROWS):
        terms[rows] = _lowest_ids(weights[rows], least[rows], k)
    terms = terms.sort(dim=1).values
    return terms, weights.gather(1, terms)


def _lowest_ids(weights: torch.Tensor, least: torch.Tensor, k: int) -> torch.Tensor:
    """Return the ``k`` kept ids of rows in which more than ``k`` terms weigh ``least`` or more."""
    tied = weights == least
    room = k - (weights > least).sum(dim=1, keepdim=True)
    return ((weights > least) | (tied & (tied.cumsum(dim=1) <= room))).nonzero()[:, 1].view(len(weights), k)


@dataclass(frozen=True, slots=True)
class KeptTerms:
    """The heaviest terms of B vectors."""

    terms: torch.Tensor  # int64 [B, k], strictly increasing within a row
    weights: torch.Tensor  # [B, k]; weights above 0 pass the gradient; 0 fills up vectors with fewer than k terms
    vocabulary_size: int  # V
    # bool [B, k], terms that a gradient reaches, at any weight; None: those with a weight above 0
    reached: torch.Tensor | None = None

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

    def dense(self) -> torch.Tensor:
        """Return dense rows, [B, V]."""
        return self.weights.new_zeros(len(self), self.vocabulary_size).scatter(1, self.terms, self.weights)


Vectors = torch.Tensor | KeptTerms
"""B vectors over the vocabulary: [B, V], or the heaviest terms of each."""


def weights_of(vectors: Vectors) -> torch.Tensor:
    """Return the stored weights, [B, V] or [B, k]."""
    return vectors if isinstance(vectors, torch.Tensor) else vectors.weights


def keep_terms(vectors: Vectors, k: int) -> KeptTerms:
    """Return the ``k`` heaviest terms of every vector; ties go to the lower id."""
    if isinstance(vectors, KeptTerms):
        return vectors.top(k)
    terms, weights = heaviest_terms(vectors.detach(), min(k, vectors.shape[1]))
    return KeptTerms(terms, torch.where(weights > 0, vectors.gather(1, terms), 0.0), vectors.shape[1])


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
    """Return the vectors of all workers in rank order, as ``process_group.all_rows``; pruned ones are sent pruned."""
    if isinstance(vectors, torch.Tensor):
        return process_group.all_rows(vectors, counts)
    terms, weights = process_group.all_rows(vectors.terms, counts), process_group.all_rows(vectors.weights, counts)
    reached = None if vectors.reached is None else process_group.all_rows(vectors.reached.byte(), counts).bool()
    return KeptTerms(terms, weights, vectors.vocabulary_size, reached)


def active_terms(rows: Vectors) -> torch.Tensor:
    """Return the number of terms with a weight above 0, int64 [B]."""
    return torch.count_nonzero(weights_of(rows).detach(), dim=1)


def _width(vectors: Vectors) -> int:
    return weights_of(vectors).shape[1]


def temperature(settings: PruningSettings, step: int, steps: int) -> float:
    """Return the temperature of a step; it changes by a constant factor from the first step to the last."""
    share = min(1.0, step / max(1, steps - 1))
    return float(settings.temperature_start * (settings.temperature_end / settings.temperature_start) ** share)


def prune_through(candidates: KeptTerms, k: int, temperature: float) -> KeptTerms:
    """Return the candidates, of which all but the ``k`` heaviest weigh 0; all candidates receive a gradient.

    The gradient of a candidate is that of its pruned weight, times ``sigmoid((weight - k-th weight) / temperature)``:
    one half at the boundary. A vector with at most k active terms is not pruned; its gradient is passed unchanged.
    """
    weights = candidates.weights.detach()
    active = weights > 0
    pruned = (active.sum(dim=1) > k)[:, None]
    boundary = weights.topk(k, dim=1).values[:, -1:]
    factors = torch.where(pruned, torch.sigmoid((weights - boundary) / temperature), 1.0) * active
    # The candidates are ordered by id, so the first of those that tie with the boundary are kept.
    above, tied = weights > boundary, weights == boundary
    kept = above | (tied & (tied.cumsum(dim=1) <= k - above.sum(dim=1, keepdim=True)))
    hard: torch.Tensor = _StraightThrough.apply(candidates.weights, kept, factors)  # type: ignore[no-untyped-call]
    return KeptTerms(candidates.terms, hard, candidates.vocabulary_size, reached=active)


class _StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: torch.Tensor, kept: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(factors)
        return torch.where(kept, weights, 0.0)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (factors,) = ctx.saved_tensors
        return gradient * factors, None, None
