"""The best k hits of a scan: a binary heap in three arrays, with the worst hit at place 0.

A hit is worse if its score is smaller or, on equal scores, if its document has the higher id (``id_rank``).
"""

from typing import Any

import numpy as np

from lsr_prod.compiled import compiled

__all__ = ["offer", "sort_hits"]


@compiled
def _worse(scores: Any, documents: Any, id_rank: Any, one: int, other: int) -> bool:
    if scores[one] != scores[other]:
        return bool(scores[one] < scores[other])
    return bool(id_rank[documents[one]] > id_rank[documents[other]])


@compiled
def _swap(scores: Any, documents: Any, counts: Any, one: int, other: int) -> None:
    scores[one], scores[other] = scores[other], scores[one]
    documents[one], documents[other] = documents[other], documents[one]
    counts[one], counts[other] = counts[other], counts[one]


@compiled
def _sift_up(scores: Any, documents: Any, counts: Any, id_rank: Any, place: int) -> None:
    while place > 0:
        parent = (place - 1) >> 1
        if not _worse(scores, documents, id_rank, place, parent):
            return
        _swap(scores, documents, counts, place, parent)
        place = parent


@compiled
def _sift_down(scores: Any, documents: Any, counts: Any, id_rank: Any, size: int) -> None:
    place = 0
    while True:
        child = 2 * place + 1
        if child >= size:
            return
        if child + 1 < size and _worse(scores, documents, id_rank, child + 1, child):
            child += 1
        if not _worse(scores, documents, id_rank, child, place):
            return
        _swap(scores, documents, counts, child, place)
        place = child


@compiled
def offer(
    scores: Any, documents: Any, counts: Any, id_rank: Any, filled: int, score: Any, document: int, count: int
) -> int:
    """Add a hit to the heap if it is among the best k.

    Args:
        scores: float32 [k].
        documents: int64 [k], ordinals.
        counts: uint16 [k], shared terms.
        id_rank: uint32 [N].
        filled: number of hits in the heap.
        score: score of the hit.
        document: its ordinal.
        count: its shared terms.

    Returns:
        The new number of hits in the heap.
    """
    if filled < len(scores):
        scores[filled], documents[filled], counts[filled] = score, document, count
        _sift_up(scores, documents, counts, id_rank, filled)
        return filled + 1
    if filled == 0 or score < scores[0] or (score == scores[0] and id_rank[document] > id_rank[documents[0]]):
        return filled
    scores[0], documents[0], counts[0] = score, document, np.uint16(count)
    _sift_down(scores, documents, counts, id_rank, filled)
    return filled


@compiled
def sort_hits(scores: Any, documents: Any, counts: Any, id_rank: Any, filled: int) -> None:
    """Sort a heap of ``filled`` hits, the best hit first."""
    for size in range(filled - 1, 0, -1):
        _swap(scores, documents, counts, 0, size)
        _sift_down(scores, documents, counts, id_rank, size)
