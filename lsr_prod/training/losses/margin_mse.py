"""MarginMSE: distillation of a teacher's score margins."""

from torch import Tensor

from lsr_prod.config.objective import LossSettings
from lsr_prod.training.losses.scores import Scores


def loss(settings: LossSettings, scores: Scores, teacher: Tensor | None, *, cosine: bool) -> Tensor:
    """Return MarginMSE summed over this worker's queries."""
    pairs = scores.pairs(cosine=cosine)
    if not len(pairs):
        return pairs.sum()  # a worker without queries does not know c
    if teacher is None:
        raise ValueError(f"{settings.loss} needs the teacher's scores")
    return margin_mse(pairs, teacher, excluded=scores.excluded_pairs())


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
