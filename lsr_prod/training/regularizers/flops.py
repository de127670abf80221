"""FLOPS regularizers: squared mean weights, of queries, of documents or of both.

Every regularizer takes the rows of one worker and returns the value for the rows of all workers, equal on all of them.
Its gradient is that of the worker's own rows (``collective.global_sum``). The rows are those of the trained
representation: masked if ``keep`` is ``masked``, else whole.
"""

from torch import Tensor

from lsr_prod.training.parallel import collective
from lsr_prod.training.vectors.kept_terms import Vectors, active_terms
from lsr_prod.training.vectors.similarity import pair_dot


def flops(rows: Vectors, texts: int, *, l0_mask: int | None = None, term_weights: Tensor | None = None) -> Tensor:
    """Return FLOPS (ESPLADE, eq. 3): the sum over terms of the squared mean weight.

    Returns:
        Scalar.
    """
    means = mean_weights(rows, texts, l0_mask=l0_mask)
    if term_weights is not None:
        means = means * term_weights
    return means.square().sum()


def joint_flops(queries: Vectors, documents: Vectors, *, query_texts: int, document_texts: int) -> Tensor:
    """Return joint FLOPS (ESPLADE, eq. 4): the dot product of the mean query and the mean document.

    Returns:
        Scalar.
    """
    return mean_weights(queries, query_texts) @ mean_weights(documents, document_texts)


def off_diagonal_joint_flops(queries: Vectors, documents: Vectors, *, query_texts: int, document_texts: int) -> Tensor:
    """Return joint FLOPS without the own positives: the mean product of a query and a document over all other pairs.

    A query's product with its own positive is many times the mean. ``joint_flops`` contains it with a share of one
    divided by the number of documents, so its weight has to shrink with the batch. This mean (ours) does not depend on
    the size of the batch, nor, in expectation, on the parts into which a step is split.

    Returns:
        Scalar: (sum over all pairs - sum over own positives) / (N * N * c - N); 0 if there is no other pair.
    """
    pairs = query_texts * document_texts - query_texts
    if not pairs:
        return queries.new_zeros(()) if isinstance(queries, Tensor) else queries.weights.new_zeros(())
    everyones = mean_weights(queries, 1) @ mean_weights(documents, 1)
    own = pair_dot(queries, documents)[:, :1].sum()  # of all own documents: a slice of them would copy its gradient
    return (everyones - collective.global_sum(own)) / pairs


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
