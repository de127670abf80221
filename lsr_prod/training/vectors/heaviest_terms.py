"""Heaviest terms of a vector, for training masks and pruning."""

import torch
from torch import Tensor

from lsr_prod.model import host_reads

_ROWS = 64  # rows with ties per batch


@torch.no_grad()
def heaviest_terms(weights: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return ids and weights of the ``k`` heaviest terms of every row, by increasing id; ties go to the lower id.

    Returns:
        int64 [B, k] and [B, k]. Rows with fewer active terms are filled up with inactive terms of weight 0.
    """
    if not host_reads.are_free(weights.device):  # whether rows have ties is unknown to the host: a stable sort of all
        terms = weights.sort(dim=1, descending=True, stable=True).indices[:, :k].sort(dim=1).values
        return terms, weights.gather(1, terms)
    values, terms = weights.topk(k, dim=1, sorted=False)
    least = values.amin(dim=1, keepdim=True)
    surplus = ((weights >= least).sum(dim=1) > k) & (least[:, 0] > 0)
    for rows in torch.split(surplus.nonzero()[:, 0], _ROWS):
        terms[rows] = _lowest_ids(weights[rows], least[rows], k)
    terms = terms.sort(dim=1).values
    return terms, weights.gather(1, terms)


def _lowest_ids(weights: Tensor, least: Tensor, k: int) -> Tensor:
    """Return the ``k`` kept ids of rows in which more than ``k`` terms weigh ``least`` or more."""
    tied = weights == least
    room = k - (weights > least).sum(dim=1, keepdim=True)
    kept = (weights > least) | (tied & (tied.cumsum(dim=1) <= room))
    return kept.nonzero()[:, 1].view(len(weights), k)
