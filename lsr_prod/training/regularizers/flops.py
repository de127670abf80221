"""FLOPS regularizers: squared mean weights, of queries, of documents or of both.

Every regularizer takes the rows of one worker and returns the value for the rows of all workers, equal on all of them.
Its gradient is that of the worker's own rows (``collective.global_sum``). The rows are those of the trained
representation: masked if ``keep`` is ``masked``, else whole.
"""

from torch import Tensor

from lsr_prod.training.parallel import collective
from lsr_prod.training.vectors.kept_terms import Vectors, active_terms

__all__ = ["flops", "joint_flops", "mean_weights"]


def flops(rows: Vectors, texts: int, *, l0_mask: int | None = None, term_weights: Tensor | None = None) -> Tensor:
    """Return FLOPS (ESPLADE, eq. 3): the sum over terms of the squared mean weight.

    Args:
        rows: B vectors.
        texts: rows of all workers.
        l0_mask: rows with at most this many active terms count as zero.
        term_weights: [V], factors of the mean weights, applied before squaring (DF-FLOPS, arXiv 2505.15070).

    Returns:
        Scalar.
    """
    means = mean_weights(rows, texts, l0_mask=l0_mask)
    if term_weights is not None:
        means = means * term_weights
    return means.square().sum()


def joint_flops(queries: Vectors, documents: Vectors, *, query_texts: int, document_texts: int) -> Tensor:
    """Return joint FLOPS (ESPLADE, eq. 4): the dot product of the mean query and the mean document.

    Args:
        queries: n vectors.
        documents: m vectors, negatives included.
        query_texts: queries of all workers.
        document_texts: documents of all workers.

    Returns:
        Scalar.
    """
    return mean_weights(queries, query_texts) @ mean_weights(documents, document_texts)


def mean_weights(rows: Vectors, texts: int, *, l0_mask: int | None = None) -> Tensor:
    """Return the mean weight of every term over the texts of all workers, [V]."""
    weights = rows if isinstance(rows, Tensor) else rows.weights
    enters = None if l0_mask is None else (active_terms(rows) > l0_mask).to(weights.dtype)
    if isinstance(rows, Tensor):
        # A product with the mask avoids a masked copy of the rows.
        sums = rows.sum(dim=0) if enters is None else enters @ rows
    else:
        counted = weights if enters is None else weights * enters[:, None]
        sums = weights.new_zeros(rows.vocabulary_size).index_add(0, rows.terms.flatten(), counted.flatten())
    return collective.global_sum(sums) / texts
