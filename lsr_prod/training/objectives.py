"""Ranking losses over score matrices.

Each is a sum over the queries of one worker; the caller divides by the queries of the global batch.
"""

from torch import Tensor
from torch.nn import functional

__all__ = ["info_nce", "kl", "margin_mse"]


def info_nce(scores: Tensor, positive: Tensor, *, temperature: float = 1.0, margin: float = 0.0) -> Tensor:
    """Cross entropy of the positive among the documents of a row.

    With positives as the only documents, temperature 1 and no margin this is the N-pair loss (ESPLADE, eq. 2).

    Args:
        scores: [n, m], unscaled.
        positive: int64 [n], the column of each query's positive.
        temperature: scores are divided by it.
        margin: taken from the positive's score before the division.

    Returns:
        Scalar, the sum over queries.
    """
    column = positive[:, None]
    if margin:
        scores = scores.scatter_add(1, column, scores.new_full(column.shape, -margin))
    return functional.cross_entropy(scores / temperature, positive, reduction="sum")


def margin_mse(scores: Tensor, teacher: Tensor) -> Tensor:
    """Squared difference between the student's and the teacher's margins, the mean over all negatives of a query.

    Args:
        scores: [n, c], the positive's first.
        teacher: [n, c].

    Returns:
        Scalar, the sum over queries.
    """
    student_margins = scores[:, :1] - scores[:, 1:]
    teacher_margins = teacher[:, :1] - teacher[:, 1:]
    return (student_margins - teacher_margins).square().sum() / (scores.shape[1] - 1)


def kl(scores: Tensor, teacher: Tensor, *, temperature: float = 1.0, teacher_temperature: float = 1.0) -> Tensor:
    """Kullback-Leibler divergence of the student's distribution over a query's documents from the teacher's.

    Args:
        scores: [n, c].
        teacher: [n, c].
        temperature: the student's scores are divided by it.
        teacher_temperature: the teacher's scores are divided by it.

    Returns:
        Scalar, the sum over queries; not multiplied by a squared temperature.
    """
    student = functional.log_softmax(scores / temperature, dim=1)
    target = functional.log_softmax(teacher / teacher_temperature, dim=1)
    return functional.kl_div(student, target, reduction="sum", log_target=True)
