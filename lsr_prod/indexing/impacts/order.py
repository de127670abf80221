"""Order the documents of a shard so that similar ones are close and a term occurs in few document blocks.

Recursive graph bisection (Dhulipala et al., KDD 2016, "Compressing Graphs and Indexes with Recursive Graph Bisection"):
a set of documents is split into halves, and pairs of documents are exchanged while that lowers the estimated size of
the gaps between postings, the sum over terms of deg * log2(n / (deg + 1)) over both halves; then each half is split.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from lsr_prod.indexing.impacts.vectors import Vectors
from lsr_prod.kernels import native

_TERMS = 8  # heaviest terms of a document that are used


def order_documents(vectors: Vectors, vocabulary_size: int, block_size: int, *, threads: int = 1) -> npt.NDArray[Any]:
    """Return an order in which documents with common terms are close; equal vectors give an equal order.

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
        first, last = int(part[0]), int(part[-1]) + 1
        native.bisect_sets(places, bounds, cuts, first, last, rows.offsets, rows.terms, vocabulary_size, logs)

    if len(parts) == 1:
        work(parts[0])
        return
    with ThreadPoolExecutor(len(parts)) as pool:
        list(pool.map(work, parts))
