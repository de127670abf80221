"""InfoNCE, and the N-pair loss, which is InfoNCE over the positives of the batch."""

import torch
from torch import Tensor
from torch.nn import functional

from lsr_prod.config.objective import LossSettings
from lsr_prod.training.losses.scores import Scores

CONTRASTIVE = ("info_nce", "n_pair")
"""Losses that compare a positive with the documents of other queries."""


def info_nce_loss(settings: LossSettings, scores: Scores, _teacher: Tensor | None, *, cosine: bool) -> Tensor:
    """Return InfoNCE summed over this worker's queries; ``in_batch`` adds the documents of other queries."""
    temperature = settings.cosine_temperature if cosine else settings.temperature
    if settings.in_batch:
        positive = scores.own * scores.c
        return info_nce(scores.all(cosine=cosine), positive, temperature=temperature, margin=settings.margin)
    pairs = scores.candidates(cosine=cosine)
    if not len(pairs):
        return pairs.sum()  # a worker without queries does not know c
    first = torch.zeros(len(pairs), dtype=torch.int64, device=pairs.device)
    return info_nce(
        pairs, first, temperature=temperature, margin=settings.margin, excluded=scores.excluded_pairs()
    )  # fmt: skip


def info_nce(
    scores: Tensor, positive: Tensor, *, temperature: float = 1.0, margin: float = 0.0, excluded: Tensor | None = None
) -> Tensor:
    """Return the cross entropy of the positive among the documents of a row.

    Without hard negatives and margin, at temperature 1, this is the N-pair loss (ESPLADE, eq. 2).

    Returns:
        Scalar, the sum over queries.
    """
    column = positive[:, None]
    if margin:
        scores = scores.scatter_add(1, column, scores.new_full(column.shape, -margin))
    if excluded is not None:
        scores = scores.masked_fill(excluded, -torch.inf)
    return functional.cross_entropy(scores / temperature, positive, reduction="sum")


def n_pair_loss(settings: LossSettings, scores: Scores, _teacher: Tensor | None, *, cosine: bool) -> Tensor:
    """Return the N-pair loss (ESPLADE, eq. 2): InfoNCE over the positives of the batch, without hard negatives."""
    temperature = settings.cosine_temperature if cosine else 1.0  # unscaled cosines are too close to rank
    return info_nce(scores.positives(cosine=cosine), scores.own, temperature=temperature)
