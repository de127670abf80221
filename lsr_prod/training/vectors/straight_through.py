"""Straight-through pruning: the heaviest terms in the forward pass, also terms near the boundary in the backward pass.

Pruning to k terms gives no gradient to the term of rank k + 1, so training reweighs the kept terms and hardly chooses
others. Here the gradient of the pruned weight of a term is multiplied by ``sigmoid((weight - k-th weight) /
temperature)`` and passed on, for kept terms and for the next ones by weight (an extension of ours; no paper states it).
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lsr_prod.config.objective import PruningSettings
from lsr_prod.training.vectors.kept_terms import KeptTerms


def temperature(settings: PruningSettings, step: int, steps: int) -> float:
    """Return the temperature of a step: ``temperature_start`` at the first, ``temperature_end`` at the last.

    In between it changes by a constant factor per step.
    """
    share = min(1.0, step / max(1, steps - 1))
    return float(settings.temperature_start * (settings.temperature_end / settings.temperature_start) ** share)


def prune_through(candidates: KeptTerms, k: int, temperature: float) -> KeptTerms:
    """Return the ``k`` heaviest terms of every vector; all candidates receive a gradient.

    The gradient of a candidate is that of its pruned weight, times ``sigmoid((weight - k-th weight) / temperature)``:
    one half at the boundary. A vector with at most k active terms is not pruned; its gradient is passed unchanged.

    Returns:
        B vectors of m terms, of which all but the k heaviest weigh 0.
    """
    weights = candidates.weights.detach()
    active = weights > 0
    pruned = (active.sum(dim=1) > k)[:, None]
    boundary = weights.topk(k, dim=1).values[:, -1:]
    factors = torch.where(pruned, torch.sigmoid((weights - boundary) / temperature), 1.0) * active
    # The candidates are ordered by id, so the first of those that tie with the boundary are kept.
    above, tied = weights > boundary, weights == boundary
    kept = above | (tied & (tied.cumsum(dim=1) <= k - above.sum(dim=1, keepdim=True)))
    hard: Tensor = _StraightThrough.apply(candidates.weights, kept, factors)  # type: ignore[no-untyped-call]
    return KeptTerms(candidates.terms, hard, candidates.vocabulary_size, reached=active)


class _StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, kept: Tensor, factors: Tensor) -> Tensor:
        ctx.save_for_backward(factors)
        return torch.where(kept, weights, 0.0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (factors,) = ctx.saved_tensors
        return gradient * factors, None, None
