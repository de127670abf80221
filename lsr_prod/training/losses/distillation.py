"""MarginMSE and the KL divergence: losses against the scores of a teacher."""

import torch
from torch import Tensor
from torch.nn import functional

from lsr_prod.config.objective import LossSettings
from lsr_prod.training.losses.scores import Scores


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
    """Return the squared difference of student and teacher margins, averaged over the negatives of each query.

    Returns:
        Scalar, the sum over queries; a query without a negative adds 0.
    """
    student_margins = scores[:, :1] - scores[:, 1:]
    teacher_margins = teacher[:, :1] - teacher[:, 1:]
    squares = (student_margins - teacher_margins).square()
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
