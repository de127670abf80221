"""Order the documents of a shard so that similar ones are close and a term occurs in few document blocks.

Recursive graph bisection (Dhulipala et al., KDD 2016, "Compressing Graphs and Indexes with Recursive Graph Bisection"):
a set of documents is split into halves, and pairs of documents are exchanged while that lowers the estimated size of
the gaps between postings, the sum over terms of deg * log2(n / (deg + 1)) over both halves; then each half is split.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from lsr_prod.compiled import compiled
from lsr_prod.indexing.impacts.vectors import Vectors

__all__ = ["order_documents"]

_TERMS = 8  # heaviest terms of a document that are used
_ROUNDS = 4  # most rounds of exchanges per split
_LEVELS = 4096  # levels that gains are rounded to
_MIN_MOVED = 0.005  # share of documents; a round that exchanges fewer is the last


def order_documents(vectors: Vectors, vocabulary_size: int, block_size: int, *, threads: int = 1) -> npt.NDArray[Any]:
    """Return an order in which documents with common terms are close; equal vectors give an equal order.

    Args:
        vectors: vectors of N documents.
        vocabulary_size: V.
        block_size: sets of at most this size are not split, and sets are split at multiples of it.
        threads: number of threads; each works on different sets.

    Returns:
        uint32 [N]: number of the document at each position.
    """
    count = len(vectors)
    rows = vectors.top(_TERMS)
    order = np.arange(count, dtype=np.uint32)
    bounds = np.array([0, count], np.int64)
    logs = np.log2(np.maximum(np.arange(count + 4), 1)).astype(np.float32)
    while (np.diff(bounds) > block_size).any():
        places = np.arange(count, dtype=np.int64)
        cuts = _cuts(bounds, block_size)
        _bisect_all(places, bounds, cuts, rows, vocabulary_size, logs, threads)
        order = order[places]
        rows = rows.take(places)
        bounds = np.unique(np.concatenate([bounds, cuts]))
    return order


def _cuts(bounds: npt.NDArray[np.int64], block_size: int) -> npt.NDArray[np.int64]:
    """Return the split point of each set: the multiple of ``block_size`` after its middle, if it is inside the set."""
    first, last = bounds[:-1], bounds[1:]
    blocks = -(-(last - first) // block_size)
    return np.minimum(last, first + (blocks + 1) // 2 * block_size)


def _bisect_all(
    places: npt.NDArray[np.int64],
    bounds: npt.NDArray[np.int64],
    cuts: npt.NDArray[np.int64],
    rows: Vectors,
    vocabulary_size: int,
    logs: npt.NDArray[np.float32],
    threads: int,
) -> None:
    parts = np.array_split(np.arange(len(cuts)), min(threads, len(cuts)))

    def work(part: npt.NDArray[np.int64]) -> None:
        _bisect_sets(places, bounds, cuts, part[0], part[-1] + 1, rows.offsets, rows.terms, vocabulary_size, logs)

    if len(parts) == 1:
        work(parts[0])
        return
    with ThreadPoolExecutor(len(parts)) as pool:
        list(pool.map(work, parts))


@compiled
def _count_sides(places: Any, half: int, offsets: Any, terms: Any, left: Any, right: Any, seen: Any) -> int:
    """Count document frequencies on both sides, list the distinct terms in ``seen`` and return their number."""
    distinct = 0
    for i in range(len(places)):
        for at in range(offsets[places[i]], offsets[places[i] + 1]):
            term = terms[at]
            if left[term] == 0 and right[term] == 0:
                seen[distinct] = term
                distinct += 1
            if i < half:
                left[term] += 1
            else:
                right[term] += 1
    return distinct


@compiled
def _term_gains(
    size_left: int, size_right: int, seen: Any, left: Any, right: Any, logs: Any, gain_left: Any, gain_right: Any
) -> None:
    """Compute the bits saved by moving one posting of a term to the other side."""
    log_left, log_right = logs[size_left], logs[size_right]
    for term in seen:
        a, b = left[term], right[term]
        now = a * (log_left - logs[a + 1]) + b * (log_right - logs[b + 1])
        if a > 0:
            then = (a - 1) * (log_left - logs[a]) + (b + 1) * (log_right - logs[b + 2])
            gain_left[term] = now - then
        if b > 0:
            then = (a + 1) * (log_left - logs[a + 2]) + (b - 1) * (log_right - logs[b])
            gain_right[term] = now - then


@compiled
def _by_falling_gain(gains: Any) -> Any:
    """Return positions by falling gain, rounded to 4,096 levels: an exact sort would take a third of the total time."""
    least, largest = gains[0], gains[0]
    for gain in gains:
        least, largest = min(least, gain), max(largest, gain)
    scale = np.float32(_LEVELS - 1) / (largest - least) if largest > least else np.float32(0)
    starts = np.zeros(_LEVELS + 1, np.int64)
    for gain in gains:
        starts[np.int64((largest - gain) * scale) + 1] += 1
    for level in range(_LEVELS):
        starts[level + 1] += starts[level]
    places = np.empty(len(gains), np.int64)
    for i in range(len(gains)):
        mine = np.int64((largest - gains[i]) * scale)
        places[starts[mine]] = i
        starts[mine] += 1
    return places


@compiled
def _exchange(places: Any, half: int, gains: Any, offsets: Any, terms: Any, left: Any, right: Any) -> int:
    """Exchange pairs of documents, largest gain first, while their gain is positive; return the number of pairs."""
    movers, others = _by_falling_gain(gains[:half]), _by_falling_gain(gains[half : len(places)])
    for pair in range(min(len(movers), len(others))):
        one, other = movers[pair], half + others[pair]
        if gains[one] + gains[other] <= 0:
            return pair
        for at in range(offsets[places[one]], offsets[places[one] + 1]):
            left[terms[at]] -= 1
            right[terms[at]] += 1
        for at in range(offsets[places[other]], offsets[places[other] + 1]):
            left[terms[at]] += 1
            right[terms[at]] -= 1
        places[one], places[other] = places[other], places[one]
    return min(len(movers), len(others))


@compiled
def _bisect_sets(
    places: Any,
    bounds: Any,
    cuts: Any,
    first: int,
    last: int,
    offsets: Any,
    terms: Any,
    vocabulary_size: int,
    logs: Any,
) -> None:
    """Split the sets ``first`` to ``last - 1``: reorder ``places`` inside each of them."""
    left, right = np.zeros(vocabulary_size, np.int32), np.zeros(vocabulary_size, np.int32)
    gain_left, gain_right = np.zeros(vocabulary_size, np.float32), np.zeros(vocabulary_size, np.float32)
    seen = np.empty(vocabulary_size, np.int32)
    gains = np.empty(0, np.float32)
    for number in range(first, last):
        mine = places[bounds[number] : bounds[number + 1]]
        half = cuts[number] - bounds[number]
        if half <= 0 or half >= len(mine):
            continue
        if len(gains) < len(mine):
            gains = np.empty(len(mine), np.float32)
        distinct = _count_sides(mine, half, offsets, terms, left, right, seen)
        for _ in range(_ROUNDS):
            _term_gains(half, len(mine) - half, seen[:distinct], left, right, logs, gain_left, gain_right)
            for i in range(len(mine)):
                gain = np.float32(0)
                for at in range(offsets[mine[i]], offsets[mine[i] + 1]):
                    gain += gain_left[terms[at]] if i < half else gain_right[terms[at]]
                gains[i] = gain
            if _exchange(mine, half, gains, offsets, terms, left, right) < _MIN_MOVED * len(mine):
                break
        for term in seen[:distinct]:
            left[term] = 0
            right[term] = 0
