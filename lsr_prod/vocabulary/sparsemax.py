"""Sparsemax (Martins and Astudillo 2016): projection of scores onto the simplex; most weights become 0."""

import torch
from torch import Tensor

_SUPPORT = 64  # scores that are sorted in the first attempt


def sparsemax(scores: Tensor) -> Tensor:
    """Return the weights nearest to the scores of each row, at least 0 and with sum 1 (vocabulary-transfer, eq. 8).

    Returns:
        [B, n], with the dtype of the scores.
    """
    columns, weights = sparsemax_support(scores)
    return torch.zeros_like(scores).scatter_(1, columns, weights)


def sparsemax_support(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weights of ``sparsemax`` as columns and values.

    Only the k highest scores of a row are sorted. They are sufficient if the threshold of the row is above the lowest
    of them; k grows until this holds for every row, so the result is exact.

    Returns:
        Columns, int64 [B, k], and their weights [B, k], descending; 0 beyond a row's support.
    """
    n = scores.shape[1]
    k = min(_SUPPORT, n)
    while True:
        highest, columns = scores.topk(k, dim=1)
        threshold = _threshold(highest.double())  # [B, 1]
        if k == n or bool((threshold >= highest[:, -1:]).all()):
            weights = (highest - threshold).clamp_(min=0).to(scores.dtype)
            return columns, weights
        k = min(4 * k, n)


def _threshold(highest: Tensor) -> Tensor:
    """Return the threshold of each row [B, 1], given its highest scores [B, k] in descending order."""
    sums = highest.cumsum(dim=1) - 1
    counts = torch.arange(1, highest.shape[1] + 1, dtype=highest.dtype, device=highest.device)
    support = (counts * highest > sums).sum(dim=1, keepdim=True)  # [B, 1], at least 1
    return sums.gather(1, support - 1) / support
