"""What keeps vectors sparse: penalties on the weights of the global batch.

Every function takes the rows of one worker and returns the value for the rows of all of them, equal on all workers.
Its gradient is that of the worker's own rows (``collective.global_sum``). The rows are those of the representation
that is trained: the masked one where ``keep`` is ``masked``, else the whole one.
"""

import torch
from torch import Tensor

from lsr_prod.training import collective
from lsr_prod.training.kept_terms import Vectors

__all__ = ["active_terms", "cased", "flops", "joint_flops", "l1", "mean_weights"]


def flops(rows: Vectors, texts: int, *, l0_mask: int | None = None, term_weights: Tensor | None = None) -> Tensor:
    """FLOPS (ESPLADE, eq. 3): the sum over terms of the squared mean weight.

    Args:
        rows: B vectors.
        texts: rows of all workers.
        l0_mask: only rows with more active terms than this enter; the mean is over all of them.
        term_weights: [V], factors of the mean weights before they are squared (DF-FLOPS, arXiv 2505.15070).

    Returns:
        Scalar.
    """
    means = mean_weights(rows, texts, l0_mask=l0_mask)
    if term_weights is not None:
        means = means * term_weights
    return means.square().sum()


def joint_flops(queries: Vectors, documents: Vectors, *, query_texts: int, document_texts: int) -> Tensor:
    """Joint FLOPS (ESPLADE, eq. 4): the dot product of the mean query and the mean document.

    Args:
        queries: n vectors.
        documents: m vectors, negatives included.
        query_texts: queries of all workers.
        document_texts: documents of all workers.

    Returns:
        Scalar.
    """
    return mean_weights(queries, query_texts) @ mean_weights(documents, document_texts)


def l1(rows: Vectors, texts: int, *, l0_mask: int | None = None) -> Tensor:
    """The mean over texts of the sum of the weights, which are at least 0.

    Args:
        rows: B vectors.
        texts: rows of all workers.
        l0_mask: only rows with more active terms than this enter; the mean is over all of them.

    Returns:
        Scalar.
    """
    return mean_weights(rows, texts, l0_mask=l0_mask).sum()


def cased(rows: Vectors, is_cased: Tensor) -> Tensor:
    """The sum of the squared weights of cased terms, over all texts and not their mean (casing, eq. 3).

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


def mean_weights(rows: Vectors, texts: int, *, l0_mask: int | None = None) -> Tensor:
    """The mean weight of every term over the texts of all workers, [V]."""
    weights = rows if isinstance(rows, Tensor) else rows.weights
    enters = None if l0_mask is None else (active_terms(rows) > l0_mask).to(weights.dtype)
    if isinstance(rows, Tensor):
        # A product with the mask as a vector makes no masked copy of the rows.
        sums = rows.sum(dim=0) if enters is None else enters @ rows
    else:
        counted = weights if enters is None else weights * enters[:, None]
        sums = weights.new_zeros(rows.vocabulary_size).index_add(0, rows.terms.flatten(), counted.flatten())
    return collective.global_sum(sums) / texts


def active_terms(rows: Vectors) -> Tensor:
    """Terms of weight above 0, int64 [B]."""
    weights = rows if isinstance(rows, Tensor) else rows.weights
    return torch.count_nonzero(weights.detach(), dim=1)
