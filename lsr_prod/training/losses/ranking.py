"""The ranking losses: InfoNCE with the N-pair loss and their level at chance, MarginMSE and the KL divergence."""

import math

import torch
from torch import Tensor
from torch.nn import functional

from lsr_prod.config.objective import LossSettings, ObjectiveSettings
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
    """Return the cross entropy of the positive among the documents of a row, summed over the queries."""
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


def chance_level(
    objective: ObjectiveSettings, *, queries: int, documents: int, queue: int = 0, workers: int = 1
) -> float | None:
    """Return the sum of ``info_nce`` and ``n_pair`` if a query scores all its candidates equally.

    That is the mean of ln(B) over the queries, with B the candidates of a query: the documents of the batch (with
    ``cross_worker`` those of all workers) and of the queue, or the documents of its own row without ``in_batch``.
    Candidates that a loss masks are counted too, so the level is slightly too high if a batch has equal positives.
    """
    losses = [loss for loss in objective.losses if loss.loss in CONTRASTIVE]
    if not losses:
        return None
    pools = [queries] * queries
    if not objective.cross_worker:
        pools = [len(range(query % workers, queries, workers)) for query in range(queries)]
    return sum(
        loss.weight * sum(_of_query(loss, pool, documents, queue) for pool in pools) / queries for loss in losses
    )


def _of_query(loss: LossSettings, pool: int, documents: int, queue: int) -> float:
    """Return the loss of one query whose worker sees the documents of ``pool`` queries."""
    if loss.loss == "n_pair":
        candidates = pool
    elif loss.in_batch:
        candidates = pool * documents + queue
    else:
        candidates = documents
    temperatures = {"dot": [loss.temperature], "cosine": [loss.cosine_temperature]}
    temperatures["both"] = temperatures["dot"] + temperatures["cosine"]
    if candidates == 1:
        return 0.0
    others = math.log(candidates - 1)
    # log(1 + (B - 1) exp(margin / temperature)): the margin lowers the score of the positive alone.
    return sum(_log_one_plus_exp(others + loss.margin / temperature) for temperature in temperatures[loss.similarity])


def _log_one_plus_exp(value: float) -> float:
    return max(value, 0.0) + math.log1p(math.exp(-abs(value)))


def distillation_loss(settings: LossSettings, scores: Scores, teacher: Tensor | None, *, cosine: bool) -> Tensor:
    """Return MarginMSE, or the KL divergence from the teacher, summed over this worker's queries."""
    pairs = scores.pairs(cosine=cosine)
    if not len(pairs):
        return pairs.sum()  # a worker without queries does not know c
    if teacher is None:
        raise ValueError(f"{settings.loss} needs the teacher's scores")
    excluded = scores.excluded_pairs()
    if settings.loss == "margin_mse":
        return margin_mse(pairs, teacher, excluded=excluded)
    temperature = settings.cosine_temperature if cosine else settings.temperature
    return kl(pairs, teacher, temperature=temperature, teacher_temperature=settings.temperature, excluded=excluded)


def margin_mse(scores: Tensor, teacher: Tensor, *, excluded: Tensor | None = None) -> Tensor:
    """Return the squared difference of student and teacher margins, averaged over the negatives of a query, summed."""
    student_margins = scores[:, :1] - scores[:, 1:]
    squares = (student_margins - (teacher[:, :1] - teacher[:, 1:])).square()
    if excluded is None:
        return squares.sum() / (scores.shape[1] - 1)
    counts = (~excluded[:, 1:]).sum(dim=1).clamp(min=1)
    return (squares.masked_fill(excluded[:, 1:], 0.0).sum(dim=1) / counts).sum()


def kl(
    scores: Tensor,
    teacher: Tensor,
    *,
    temperature: float = 1.0,
    teacher_temperature: float = 1.0,
    excluded: Tensor | None = None,
) -> Tensor:
    """Return the KL divergence from the teacher's distribution over a query's documents, summed over the queries.

    It is not multiplied by the squared temperature.
    """
    if excluded is not None:
        scores, teacher = (values.masked_fill(excluded, -torch.inf) for values in (scores, teacher))
    student = functional.log_softmax(scores / temperature, dim=1)
    target = functional.log_softmax(teacher / teacher_temperature, dim=1)
    if excluded is not None:  # equal values add nothing; the difference of two infinities is not a number
        student, target = (values.masked_fill(excluded, 0.0) for values in (student, target))
    return functional.kl_div(student, target, reduction="sum", log_target=True)
