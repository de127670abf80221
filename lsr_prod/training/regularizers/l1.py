"""L1: mean sum of weights."""

from torch import Tensor

from lsr_prod.training.regularizers.flops import mean_weights
from lsr_prod.training.vectors.kept_terms import Vectors


def l1(rows: Vectors, texts: int, *, l0_mask: int | None = None) -> Tensor:
    """Return the mean over texts of the sum of their weights, which are at least 0.

    Returns:
        Scalar.
    """
    return mean_weights(rows, texts, l0_mask=l0_mask).sum()
