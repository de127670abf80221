"""The scan: one pass over document blocks sums scores, counts shared terms, and keeps the best k.

Compiled by numba on first use (seconds) and cached beside this file, or where ``NUMBA_CACHE_DIR`` says. The GIL is
released while it runs.
"""

import logging
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

__all__ = ["ACCUMULATORS", "scan"]

log = logging.getLogger(__name__)

# One accumulator for every value of a 16-bit block-local id: a damaged id cannot leave the array.
ACCUMULATORS = 1 << 16


def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    try:
        compiled: Callable[..., Any] = numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:  # numba's "no locator available": neither this folder nor the user's cache can be written
        log.warning(
            "the scan is compiled in every process, for there is no folder to cache it in; set NUMBA_CACHE_DIR",
        )
        compiled = numba.njit(nogil=True)(function)
    return compiled


def _worse(score: float, document: int, other_score: float, other_document: int) -> bool:
    return score < other_score or (score == other_score and document > other_document)


def _sift_up(scores: Any, documents: Any, counts: Any, place: int) -> None:
    """Restore the heap (worst hit at 0) after a hit was put at its end."""
    while place > 0:
        parent = (place - 1) >> 1
        if not _is_worse(scores[place], documents[place], scores[parent], documents[parent]):
            return
        scores[place], scores[parent] = scores[parent], scores[place]
        documents[place], documents[parent] = documents[parent], documents[place]
        counts[place], counts[parent] = counts[parent], counts[place]
        place = parent


def _sift_down(scores: Any, documents: Any, counts: Any) -> None:
    """Restore the heap after its worst hit was replaced."""
    size, place = len(scores), 0
    while True:
        child = 2 * place + 1
        if child >= size:
            return
        if child + 1 < size and _is_worse(scores[child + 1], documents[child + 1], scores[child], documents[child]):
            child += 1
        if not _is_worse(scores[child], documents[child], scores[place], documents[place]):
            return
        scores[place], scores[child] = scores[child], scores[place]
        documents[place], documents[child] = documents[child], documents[place]
        counts[place], counts[child] = counts[child], counts[place]
        place = child


def _find_terms(terms: Any, first: int, last: int, query_ids: Any, slots: Any) -> int:
    """Look the query's terms up in ``terms[first:last]``; returns how many are there, in ``slots`` where (or -1)."""
    present = 0
    for i in range(len(query_ids)):
        low, high = first, last
        while low < high:
            middle = (low + high) >> 1
            if terms[middle] < query_ids[i]:
                low = middle + 1
            else:
                high = middle
        slots[i] = -1
        if low < last and terms[low] == query_ids[i]:
            slots[i] = low
            present += 1
    return present


def _scatter(
    starts: Any, ids: Any, impacts: Any, base: int, block: int, slots: Any, query_weights: Any, scores: Any, counts: Any
) -> bool:
    """Add the postings of the found terms, in the query's order; False if they leave the arrays."""
    for i in range(len(slots)):
        if slots[i] < 0:
            continue
        start = base + starts[slots[i] + block]
        stop = base + starts[slots[i] + block + 1]
        if stop > len(ids):
            return False
        weight = query_weights[i]
        for posting in range(start, stop):
            document = ids[posting]
            scores[document] += weight * np.float32(impacts[posting])
            counts[document] += 1
    return True


def _scan(
    directory: Any,
    terms: Any,
    starts: Any,
    bases: Any,
    ids: Any,
    impacts: Any,
    documents: int,
    block_size: int,
    query_ids: Any,
    query_weights: Any,
    required: int,
    scores: Any,
    counts: Any,
    top_scores: Any,
    top_documents: Any,
    top_counts: Any,
) -> tuple[int, int]:
    """Match one query against one shard.

    Args:
        directory: and the five after it, ``documents`` and ``block_size``: see ``formats.shard.ImpactArrays``.
        terms: term ids of the directory.
        starts: where a term's postings begin.
        bases: where a block's postings begin.
        ids: block-local ids.
        impacts: impacts.
        documents: N.
        block_size: documents in a block.
        query_ids: int32 [q].
        query_weights: float32 [q], score of one impact unit; added in this order.
        required: shared terms that make a match, 1 or more; a block with fewer of the terms is not read.
        scores: float32 [65536], zeros before and after.
        counts: uint16 [65536], zeros before and after.
        top_scores: float32 [k], out: a heap, in no order.
        top_documents: int64 [k], out: ordinals.
        top_counts: uint16 [k], out: shared terms.

    Returns:
        Documents that match (-1: the arrays are damaged), and filled places of the heap.
    """
    matched, filled = 0, 0
    slots = np.empty(len(query_ids), np.int64)
    for block in range(len(bases) - 1):
        first, last = directory[block], directory[block + 1]
        if first < 0 or last > len(terms) or bases[block] < 0:
            return -1, 0
        if _find(terms, first, last, query_ids, slots) < required:
            continue
        if not _add(starts, ids, impacts, bases[block], block, slots, query_weights, scores, counts):
            scores[:] = 0
            counts[:] = 0
            return -1, 0
        size = min(block_size, documents - block * block_size)
        for document in range(size):
            if counts[document] < required:
                continue
            matched += 1
            if filled < len(top_scores):
                place = filled
                filled += 1
            elif filled > 0 and scores[document] > top_scores[0]:  # on equal scores the earlier document stays
                place = 0
            else:
                continue
            top_scores[place] = scores[document]
            top_documents[place] = block * block_size + document
            top_counts[place] = counts[document]
            if place > 0:
                _rise(top_scores, top_documents, top_counts, place)
            elif filled == len(top_scores):
                _sink(top_scores, top_documents, top_counts)
        scores[:size] = 0
        counts[:size] = 0
    return matched, filled


_is_worse = _compile(_worse)
_rise = _compile(_sift_up)
_sink = _compile(_sift_down)
_find = _compile(_find_terms)
_add = _compile(_scatter)
scan = _compile(_scan)
