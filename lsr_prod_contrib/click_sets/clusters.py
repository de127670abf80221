"""Clusters of queries.

The paper clusters queries with an embedding model that is not public. Here queries that share a clicked document are in
one cluster (connected components), unless the log has clusters of its own. A document that many queries click, such as
a home page, would connect everything: documents beyond a bound do not connect, and inside a cluster that is still too
large the bound is halved until its parts are small enough.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Clusters:
    """Clusters of some queries."""

    of_query: Ints  # int64 [Q], number of the cluster by rising first query; -1 for a query that is in none
    count: int  # number of clusters
    popular_documents: int = 0  # documents that do not connect queries, because too many queries clicked them
    largest: int = 0  # queries of the largest cluster before any was split
    split: int = 0  # clusters that were too large and were split
    rounds: int = 0  # how often the bound was halved


def cluster_queries(
    pair_query: Ints, pair_document: Ints, queries: int, *, max_document_queries: int, max_cluster_queries: int
) -> Clusters:
    """Cluster the queries of pairs by the documents that they share."""
    present = np.unique(pair_query)
    document = np.unique(pair_document, return_inverse=True)[1].astype(np.int64)
    degree = np.bincount(document)
    connects = (degree[document] > 1) & (degree[document] <= max_document_queries)
    limit, rounds, split = max_document_queries, 0, 0
    while True:
        label = _components(pair_query[connects], document[connects], queries, len(degree))
        size = np.bincount(label[present], minlength=label.max(initial=-1) + 1)
        if rounds == 0:
            largest = int(size.max(initial=0))
            split = int((size > max_cluster_queries).sum())
        too_large = size[label] > max_cluster_queries
        if not too_large[present].any():
            break
        limit, rounds = limit // 2, rounds + 1
        connects &= ~(too_large[pair_query] & (degree[document] > limit))
    of_query = np.full(queries, -1, np.int64)
    of_query[present] = _by_first(label[present])
    popular = int((degree > max_document_queries).sum())
    return Clusters(of_query, int(of_query.max(initial=-1)) + 1, popular, largest, split, rounds)


def given_clusters(labels: pa.Array, pair_query: Ints) -> Clusters:
    """Return the clusters that the log names; a query without one is in none."""
    used = np.zeros(len(labels), bool)
    used[pair_query] = True
    codes = labels.dictionary_encode()
    label = codes.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    named = np.array([bool(name) for name in codes.dictionary.to_pylist()], bool)
    present = np.flatnonzero(used & (named[label] if len(named) else used))
    of_query = np.full(len(labels), -1, np.int64)
    of_query[present] = _by_first(label[present])
    size = np.bincount(of_query[present])
    return Clusters(of_query, len(size), largest=int(size.max(initial=0)))


def _components(query: Ints, document: Ints, queries: int, documents: int) -> Ints:
    nodes = queries + documents
    edges = coo_array((np.ones(len(query), bool), (query, document + queries)), shape=(nodes, nodes))
    return np.asarray(connected_components(edges, directed=False)[1][:queries], dtype=np.int64)


def _by_first(label: Ints) -> Ints:
    """Number labels by their first occurrence."""
    _, first, inverse = np.unique(label, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse]
