"""Document blocks and postings that an exact search has to read."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lsr_prod.formats.shard import NO_RUN, ImpactArrays
from lsr_prod.search.query.sparse_query import SparseQuery
from lsr_prod.search.shard.shard_query import ShardQuery
from lsr_prod.search.snapshot import Snapshot

_K = 10  # hits of the searches
_ROUNDING = 1e-5  # relative error of float32 sums


@dataclass(frozen=True, slots=True)
class BlockCounts:
    """Blocks and postings per query, means over the queries, for the best 10 documents.

    Attributes:
        total: document blocks of all shards.
        candidates: blocks that hold a term of the query.
        read: blocks whose upper bound reaches the score of hit 10. An exact search reads them all; the kernel reads at
            least these.
        postings: postings of the query's terms.
        postings_read: postings that the kernel read.
    """

    total: int
    candidates: float
    read: float
    postings: float
    postings_read: float


def count_blocks(snapshot: Snapshot, queries: Sequence[SparseQuery]) -> BlockCounts:
    """Count blocks and postings for queries without a threshold."""
    total = sum(-(-shard.documents // shard.block_size) for shard in snapshot.version.shards)
    counts = np.array([_count(snapshot, query) for query in queries], np.float64).reshape(-1, 4)
    means = counts.mean(axis=0).tolist() if len(counts) else [0.0] * 4
    return BlockCounts(total, *means)


def block_bounds(
    arrays: ImpactArrays,
    ids: npt.NDArray[np.int32],
    weights: npt.NDArray[np.float32],
    blocks: int,
) -> npt.NDArray[np.float64]:
    """Return float64 [blocks]: upper bound of the scores of each block, -1 for blocks without a term of the query."""
    bounds = np.full(blocks, -1.0)
    for term, weight in zip(ids.tolist(), weights.astype(np.float64).tolist(), strict=True):
        runs = slice(int(arrays.term_runs[term]), int(arrays.term_runs[term + 1]))
        gaps = arrays.run_gaps[runs]
        real = gaps != NO_RUN
        places = np.cumsum(gaps, dtype=np.int64)[real] - 1
        bounds[places] = np.maximum(bounds[places], 0.0) + weight * arrays.run_maxima[runs][real]
    return bounds


def _count(snapshot: Snapshot, query: SparseQuery) -> tuple[int, int, int, int]:
    """Return candidate blocks, blocks that must be read, postings, and postings read."""
    known = query.ids >= 0
    ids, weights = query.ids[known], query.scaled(snapshot.version.impact_step)[known]
    shard_query = ShardQuery(ids, weights, np.ones(len(ids), np.uint8), 1, _K)
    best: list[float] = []
    read = postings = 0
    for reader in snapshot.readers.values():
        hits = reader.match(shard_query, best[-1] if len(best) == _K else 0.0)
        best = heapq.nlargest(_K, [*best, *hits.scores])
        read += hits.postings
        postings += int(reader.shard.postings.frequencies(ids).sum())
    least = best[-1] * (1 - _ROUNDING) if len(best) == _K else 0.0
    candidates = reached = 0
    for reader in snapshot.readers.values():
        shard = reader.shard.manifest
        bounds = block_bounds(reader.shard.arrays, ids, weights, -(-shard.documents // shard.block_size))
        candidates += int((bounds >= 0).sum())
        reached += int(((bounds >= least) & (bounds >= 0)).sum())
    return candidates, reached, postings, read
