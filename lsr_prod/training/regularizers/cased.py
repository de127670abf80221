"""Regularizer of cased terms (casing, eq. 3)."""

import torch
from torch import Tensor

from lsr_prod.training.parallel import collective
from lsr_prod.training.vectors.kept_terms import Vectors

__all__ = ["cased"]


def cased(rows: Vectors, is_cased: Tensor) -> Tensor:
    """Return the sum (not the mean) over all texts of the squared weights of cased terms.

    Args:
        rows: B vectors.
        is_cased: bool [V].

    Returns:
        Scalar.
    """
    if isinstance(rows, Tensor):
        squares = torch.linalg.vector_norm(rows, dim=0).square()  # [V], without a squared copy of the rows
        return collective.global_sum(torch.where(is_cased, squares, 0.0).sum())
    return collective.global_sum(torch.where(is_cased[rows.terms], rows.weights.square(), 0.0).sum())
