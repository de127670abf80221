"""Regularizer of cased terms (casing, eq. 3)."""

import torch
from torch import Tensor

from lsr_prod.training.parallel import collective
from lsr_prod.training.vectors.kept_terms import Vectors


def cased(rows: Vectors, texts: int, is_cased: Tensor) -> Tensor:
    """Return the mean over texts of the sum of the squared weights of cased terms.

    Equation 3 of the paper is printed as a sum over the batch. The authors' code takes the mean, and the weight 0.2 is
    meant for it: as a sum, the term grows with the batch size.

    Returns:
        Scalar.
    """
    if isinstance(rows, Tensor):
        squares = torch.linalg.vector_norm(rows, dim=0).square()  # [V], without a squared copy of the rows
        total = torch.where(is_cased, squares, 0.0).sum()
    else:
        total = torch.where(is_cased[rows.terms], rows.weights.square(), 0.0).sum()
    return collective.global_sum(total) / texts
