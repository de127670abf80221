"""Similarity of queries and documents: dot products, and cosines computed from them."""

import torch
from torch import Tensor

from lsr_prod.training.vectors.block_dot import block_dot
from lsr_prod.training.vectors.kept_terms import KeptTerms, Vectors, weights_of

_ZERO = 1e-6  # vectors with a smaller norm count as zero vectors


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
    found = queries.terms.gather(1, places) == terms
    return torch.where(found, queries.weights.gather(1, places), 0.0)


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
