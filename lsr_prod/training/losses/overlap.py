"""Overlap term (ESPLADE, J.3): queries and their positives learn to share enough terms for the overlap threshold.

Search counts shared terms and ignores their weights. Here a term of weight w counts as ``w / (w + softness)``: 0 if it
is inactive, close to 1 if it is heavy, and differentiable in between.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lsr_prod.config.objective import OverlapSettings
from lsr_prod.search.query.sparse_query import required_terms
from lsr_prod.training import block_dot
from lsr_prod.training.kept_terms import KeptTerms, Vectors, active_terms, weights_of

_ROWS = 64


class OverlapTerm:
    """Overlap term of queries and their positives.

    With a and b the soft counts of the terms of a query and its positive, both pruned as in search:

    - co_occurrence: ``max(0, required / size - sum(a * b) / sum(a))``, where ``size`` is the number of query terms
      after pruning to qk, and ``required`` the minimum number of shared query terms;
    - jaccard: ``1 - sum(a * b) / (sum(a) + sum(b) - sum(a * b))``.

    The value of a query without terms is 0.
    """

    def __init__(self, settings: OverlapSettings, vocabulary_size: int) -> None:
        self._settings = settings
        largest = min(settings.qk or vocabulary_size, vocabulary_size)
        threshold = settings.overlap_threshold
        self._targets = torch.tensor(
            [0.0]
            + [required_terms(size, overlap_threshold=threshold, min_terms=1) / size for size in range(1, largest + 1)],
            dtype=torch.float64,
        )

    def __call__(self, queries: Vectors, positives: Vectors) -> Tensor:
        """Return the term, summed over queries."""
        query_weights, positive_weights = weights_of(queries), weights_of(positives)
        self._targets = self._targets.to(query_weights.device)

        def of_rows(rows: slice, own: Tensor, positive: Tensor) -> Tensor:
            return self._rows(_with_weights(queries, rows, own), _with_weights(positives, rows, positive))

        total: Tensor = _SumOfSlices.apply(of_rows, query_weights, positive_weights)  # type: ignore[no-untyped-call]
        return total

    def _rows(self, queries: Vectors, positives: Vectors) -> Tensor:
        sizes = active_terms(queries)
        queries, positives = self._soft(queries), self._soft(positives)
        shared, soft_size = block_dot.pair_dot(queries, positives).sum(dim=1), weights_of(queries).sum(dim=1)
        if self._settings.term == "jaccard":
            union = soft_size + weights_of(positives).sum(dim=1) - shared
            return torch.where(sizes > 0, 1 - shared / torch.where(sizes > 0, union, 1.0), 0.0).sum()
        target = self._targets[sizes].to(shared.dtype)
        return torch.relu(target - shared / torch.where(sizes > 0, soft_size, 1.0)).sum()

    def _soft(self, vectors: Vectors) -> Vectors:
        if isinstance(vectors, Tensor):
            return vectors / (vectors + self._settings.softness)
        soft = vectors.weights / (vectors.weights + self._settings.softness)
        return KeptTerms(vectors.terms, soft, vectors.vocabulary_size)


class _SumOfSlices(torch.autograd.Function):
    """Sum over slices of rows, recomputed in the backward pass: soft counts are as large as the vectors."""

    @staticmethod
    def forward(
        ctx: Any, of_rows: Callable[[slice, Tensor, Tensor], Tensor], query_weights: Tensor, positive_weights: Tensor
    ) -> Tensor:
        ctx.of_rows = of_rows
        ctx.save_for_backward(query_weights, positive_weights)
        total = query_weights.new_zeros(())
        for rows in _slices(query_weights):
            total += of_rows(rows, query_weights[rows], positive_weights[rows])
        return total

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor, Tensor]:
        query_weights, positive_weights = ctx.saved_tensors
        query_gradient, positive_gradient = torch.empty_like(query_weights), torch.empty_like(positive_weights)
        for rows in _slices(query_weights):
            own, positive = (weights[rows].detach().requires_grad_() for weights in (query_weights, positive_weights))
            with torch.enable_grad():
                value = ctx.of_rows(rows, own, positive)
            query_gradient[rows], positive_gradient[rows] = torch.autograd.grad(value, (own, positive), gradient)
        return None, query_gradient, positive_gradient


def _slices(rows: Tensor) -> list[slice]:
    return [slice(start, start + _ROWS) for start in range(0, len(rows), _ROWS)]


def _with_weights(vectors: Vectors, rows: slice, weights: Tensor) -> Vectors:
    return weights if isinstance(vectors, Tensor) else KeptTerms(vectors.terms[rows], weights, vectors.vocabulary_size)
