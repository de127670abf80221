"""Dot products with pruned vectors, by blocks of shared columns.

Pruned vectors are as large as whole ones once they are dense. Here only one block of columns at a time is dense, in the
forward pass and again in the backward pass, and columns without terms on the pruned side are skipped.
"""

from typing import Any

import torch
from torch import Tensor

from lsr_prod.model import pooled_head
from lsr_prod.training.kept_terms import KeptTerms, Vectors, weights_of

BLOCK = 8192
"""Columns per dense block."""
_ZERO = 1e-6  # vectors with a smaller norm count as zero vectors


def block_dot(queries: Vectors, documents: Vectors) -> Tensor:
    """Return the dot products of all queries with all documents; at least one side is pruned; [n, m]."""
    columns = _columns(queries, documents)
    few = queries if isinstance(queries, KeptTerms) else documents
    assert isinstance(few, KeptTerms)
    query_terms, query_weights = _parts(queries)
    document_terms, document_weights = _parts(documents)
    scores: Tensor = _BlockDot.apply(  # type: ignore[no-untyped-call]
        query_weights, document_weights, query_terms, document_terms, columns, few.vocabulary_size
    )
    return scores


def _columns(queries: Vectors, documents: Vectors) -> Tensor:
    """Return the ids of the terms that contribute to a score or receive a gradient, increasing.

    Where the host would have to wait for their number, all terms are returned.
    """
    few = queries if isinstance(queries, KeptTerms) else documents
    assert isinstance(few, KeptTerms)
    if not pooled_head.are_free(few.terms.device):
        return torch.arange(few.vocabulary_size, device=few.terms.device)
    if isinstance(queries, KeptTerms) and isinstance(documents, KeptTerms):
        # The gradient of a term is the other side's weight of that term.
        used = (_active(queries) & _reached(documents)) | (_reached(queries) & _active(documents))
    else:
        used = _reached(few)
    return used.nonzero()[:, 0]


def _active(vectors: KeptTerms) -> Tensor:
    return _in_vocabulary(vectors, vectors.weights > 0)


def _reached(vectors: KeptTerms) -> Tensor:
    return _active(vectors) if vectors.reached is None else _in_vocabulary(vectors, vectors.reached)


def _in_vocabulary(vectors: KeptTerms, chosen: Tensor) -> Tensor:
    """Return which terms are chosen in any vector, bool [V]."""
    used = torch.zeros(vectors.vocabulary_size, dtype=torch.bool, device=vectors.terms.device)
    used[vectors.terms[chosen]] = True
    return used


def _parts(vectors: Vectors) -> tuple[Tensor | None, Tensor]:
    if isinstance(vectors, KeptTerms):
        return vectors.terms, vectors.weights
    return None, vectors


class _BlockDot(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query_weights: Tensor,
        document_weights: Tensor,
        query_terms: Tensor | None,
        document_terms: Tensor | None,
        columns: Tensor,
        vocabulary_size: int,
    ) -> Tensor:
        ctx.save_for_backward(query_weights, document_weights, query_terms, document_terms, columns)
        ctx.vocabulary_size = vocabulary_size
        queries = _Side(query_weights, query_terms, columns, vocabulary_size)
        documents = _Side(document_weights, document_terms, columns, vocabulary_size)
        scores = query_weights.new_zeros(len(query_weights), len(document_weights))
        for start in range(0, len(columns), BLOCK):
            scores.addmm_(queries.block(start), documents.block(start).T)
        return scores

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        query_weights, document_weights, query_terms, document_terms, columns = ctx.saved_tensors
        queries = _Side(query_weights, query_terms, columns, ctx.vocabulary_size)
        documents = _Side(document_weights, document_terms, columns, ctx.vocabulary_size)
        needs_queries, needs_documents = ctx.needs_input_grad[:2]
        query_gradient = torch.zeros_like(query_weights) if needs_queries else None
        document_gradient = torch.zeros_like(document_weights) if needs_documents else None
        for start in range(0, len(columns), BLOCK):
            if query_gradient is not None:
                queries.add(query_gradient, gradient @ documents.block(start), start)
            if document_gradient is not None:
                documents.add(document_gradient, gradient.T @ queries.block(start), start)
        return query_gradient, document_gradient, None, None, None, None


class _Side:
    """Vectors as dense blocks of columns; a column of zeros on either side receives terms outside the block."""

    def __init__(self, weights: Tensor, terms: Tensor | None, columns: Tensor, vocabulary_size: int) -> None:
        self._weights, self._columns = weights, columns
        self._places = None  # index of each kept term among the columns; len(columns) if it is none of them
        if terms is not None:
            lookup = torch.full((vocabulary_size,), len(columns), device=columns.device)
            lookup[columns] = torch.arange(len(columns), device=columns.device)
            self._places = lookup[terms]

    def block(self, start: int) -> Tensor:
        """Return a dense block, [B, 1 + columns of the block + 1]."""
        columns = self._columns[start : start + BLOCK]
        block = self._weights.new_zeros(len(self._weights), len(columns) + 2)
        if self._places is None:
            block[:, 1:-1] = self._weights[:, columns]
            return block
        block.scatter_(1, self._positions(start, len(columns)), self._weights)
        block[:, :: len(columns) + 1] = 0
        return block

    def add(self, gradient: Tensor, block: Tensor, start: int) -> None:
        """Add the gradient of a block to the gradient of the weights."""
        columns = self._columns[start : start + BLOCK]
        if self._places is None:
            gradient[:, columns] = block[:, 1:-1]
        else:
            gradient += block.gather(1, self._positions(start, len(columns)))

    def _positions(self, start: int, width: int) -> Tensor:
        """Return the column of each kept term in the block, int64 [B, k]."""
        assert self._places is not None
        return (self._places - (start - 1)).clamp_(0, width + 1)


def dot(queries: Vectors, documents: Vectors) -> Tensor:
    """Return the dot products of all queries with all documents: [n, m]."""
    if isinstance(queries, Tensor) and isinstance(documents, Tensor):
        return queries @ documents.T
    return block_dot(queries, documents)


def pair_dot(queries: Vectors, documents: Vectors) -> Tensor:
    """Return the dot products of each query with its own documents: [n, c]."""
    n = len(queries)
    c = len(documents) // max(1, n)
    if isinstance(documents, KeptTerms):
        weights = documents.weights
        terms = documents.terms.reshape(n, -1).contiguous() if n else documents.terms
        return (_weights_at(queries, terms).view_as(weights) * weights).sum(dim=1).view(n, c)
    own = documents.view(n, c, documents.shape[1])
    if isinstance(queries, KeptTerms):
        of_query = own.gather(2, queries.terms[:, None, :].expand(-1, c, -1))  # [n, c, k]
        return torch.bmm(of_query, queries.weights[:, :, None]).squeeze(2)
    return torch.bmm(own, queries[:, :, None]).squeeze(2)


def _weights_at(queries: Vectors, terms: Tensor) -> Tensor:
    """Return each query's weights of the given terms, int64 [n, j] -> [n, j]."""
    if isinstance(queries, Tensor):
        return queries.gather(1, terms)
    places = torch.searchsorted(queries.terms.contiguous(), terms).clamp_max(queries.terms.shape[1] - 1)
    return torch.where(queries.terms.gather(1, places) == terms, queries.weights.gather(1, places), 0.0)


def norms(vectors: Vectors) -> Tensor:
    """Return Euclidean norms, [B]."""
    lengths: Tensor = torch.linalg.vector_norm(weights_of(vectors), dim=1)
    return lengths


def cosine(dots: Tensor, query_norms: Tensor, document_norms: Tensor) -> Tensor:
    """Return cosines from dot products, without a normalized copy of the vectors: [n, m].

    The cosine of a zero vector and its gradient are 0.
    """
    return dots * _inverse(query_norms)[:, None] * _inverse(document_norms)


def _inverse(lengths: Tensor) -> Tensor:
    zero = lengths < _ZERO
    return torch.where(zero, 0.0, 1 / torch.where(zero, 1.0, lengths))
