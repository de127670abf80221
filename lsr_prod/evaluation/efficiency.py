"""Cost of retrieval: FLOPS (papers/esplade-pretraining, eq. 1) and latency percentiles."""

from collections.abc import Mapping, Sequence

import numpy as np

__all__ = ["flops", "percentile"]


def flops(queries: Sequence[Sequence[int]], document_frequency: Mapping[int, int], documents: int) -> float:
    """Return the multiplications per pair (query, document): sum_q sum_{t in q} |P_t| / (|Q| |D|).

    Args:
        queries: term ids of every query.
        document_frequency: term id -> length of its postings list |P_t|; 0 for absent terms.
        documents: |D|.
    """
    if not queries or not documents:
        return 0.0
    touched = sum(document_frequency.get(term, 0) for query in queries for term in query)
    return touched / (len(queries) * documents)


def percentile(values: Sequence[float], q: float) -> float:
    """Return the ``q``-th percentile (0..100), or 0.0 if there are no values."""
    return float(np.percentile(np.asarray(values), q)) if values else 0.0
