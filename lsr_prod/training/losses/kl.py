"""KL divergence from a teacher's distribution over a query's documents."""

import torch
from torch import Tensor
from torch.nn import functional

from lsr_prod.config.objective import LossSettings
from lsr_prod.training.losses.scores import Scores


def loss(settings: LossSettings, scores: Scores, teacher: Tensor | None, *, cosine: bool) -> Tensor:
    """Return the KL divergence summed over this worker's queries."""
    pairs = scores.pairs(cosine=cosine)
    if not len(pairs):
        return pairs.sum()  # a worker without queries does not know c
    if teacher is None:
        raise ValueError(f"{settings.loss} needs the teacher's scores")
    temperature = settings.cosine_temperature if cosine else settings.temperature
    return kl(
        pairs, teacher, temperature=temperature, teacher_temperature=settings.temperature,
        excluded=scores.excluded_pairs(),
    )  # fmt: skip


def kl(
    scores: Tensor,
    teacher: Tensor,
    *,
    temperature: float = 1.0,
    teacher_temperature: float = 1.0,
    excluded: Tensor | None = None,
) -> Tensor:
    """Return the KL divergence of the student's distribution over a query's documents from the teacher's.

    Returns:
        Scalar, the sum over queries; not multiplied by the squared temperature.
    """
    if excluded is not None:
        scores, teacher = (values.masked_fill(excluded, -torch.inf) for values in (scores, teacher))
    student = functional.log_softmax(scores / temperature, dim=1)
    target = functional.log_softmax(teacher / teacher_temperature, dim=1)
    if excluded is not None:  # equal values add nothing; the difference of two infinities is not a number
        student, target = (values.masked_fill(excluded, 0.0) for values in (student, target))
    return functional.kl_div(student, target, reduction="sum", log_target=True)
