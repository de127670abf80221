"""Exact scores of given documents, from the forward copy of their vectors."""

from typing import Any

import numpy as np

from lsr_prod.compiled import compiled

__all__ = ["score_documents"]


@compiled
def score_documents(
    offsets: Any,
    terms: Any,
    impacts: Any,
    documents: Any,
    dk: int,
    query_ids: Any,
    query_weights: Any,
    slots: Any,
    scores: Any,
    counts: Any,
) -> bool:
    """Score documents one by one, in float32 and in the query's order.

    Args:
        offsets: with ``terms`` and ``impacts``: the forward arrays of ``formats.shard``.
        terms: term ids.
        impacts: impacts.
        documents: int64 [n], ordinals inside the shard.
        dk: number of terms read per document, heaviest first.
        query_ids: int32 [q].
        query_weights: float32 [q], score per impact unit.
        slots: int32 [V], zeros before and after.
        scores: float32 [n], out.
        counts: uint16 [n], out: shared terms.

    Returns:
        False if the arrays are damaged.
    """
    for i in range(len(query_ids)):
        if 0 <= query_ids[i] < len(slots):
            slots[query_ids[i]] = i + 1
    found = np.zeros(len(query_ids) + 1, np.float32)
    whole = True
    for at in range(len(documents)):
        start, stop = offsets[documents[at]], offsets[documents[at] + 1]
        if start < 0 or stop < start or stop > len(terms):
            whole = False
            break
        for place in range(start, min(stop, start + dk)):
            term = np.int64(terms[place])
            if term < 0 or term >= len(slots):
                whole = False
                continue
            found[slots[term]] = np.float32(impacts[place])
        found[0] = 0
        score, count = np.float32(0), 0
        for i in range(len(query_ids)):
            if found[i + 1] > 0:
                score += query_weights[i] * found[i + 1]
                found[i + 1] = 0
                count += 1
        scores[at], counts[at] = score, count
    for i in range(len(query_ids)):
        if 0 <= query_ids[i] < len(slots):
            slots[query_ids[i]] = 0
    return whole
