"""Document blocks and postings that an exact search has to read."""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from lsr_prod.evaluation.efficiency import (
    PostingsCurve,
    TermCounts,
    bytes_by_part,
    document_term_counts,
    multiplications,
    postings_curve,
)
from lsr_prod.evaluation.matched import THRESHOLDS, count_matches
from lsr_prod.formats.shard import NO_RUN, ImpactArrays
from lsr_prod.search.query.sparse_query import SparseQuery
from lsr_prod.search.shard.postings import ShardQuery
from lsr_prod.search.snapshot import Snapshot

_K = 10  # hits of the searches
_ROUNDING = 1e-5  # relative error of float32 sums


@dataclass(frozen=True, slots=True)
class BlockCounts:
    """Blocks and postings per query, means over the queries, for the best 10 documents."""

    total: int  # document blocks of all shards
    candidates: float  # blocks that hold a term of the query
    # blocks whose upper bound reaches the score of hit 10. An exact search reads them all; the kernel reads at
    # least these.
    read: float
    postings: float  # postings of the query's terms
    postings_read: float  # postings that the kernel read


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


_DOCUMENTS = 1_000_000  # documents that are read for counts by threshold; larger indexes get estimates


@dataclass(frozen=True, slots=True)
class MatchedDocuments:
    """Documents that pass a threshold; estimated from a sample in an index of more than a million documents."""

    kind: str  # ``count``, ``ratio`` or ``weight``; see ``matched.Threshold``
    threshold: float  # smallest number or share
    documents: float  # mean number of documents per query


@dataclass(frozen=True, slots=True)
class QueryCosts:
    """Cost of every query, and what each system gains by it."""

    terms: list[int]  # number of terms after pruning
    multiplications: list[int]  # number of postings of these terms; their mean per document is FLOPS
    measure: str = ""  # the measure of ``gains``
    # name of the system -> value of the measure minus that of the baseline, per query
    gains: dict[str, list[float]] = field(default_factory=dict)

    def with_gains(self, values: Mapping[str, Sequence[float]], measure: str, baseline: str) -> "QueryCosts":
        """Add the gains of all systems but the baseline."""
        gains = {
            name: [value - before for value, before in zip(column, values[baseline], strict=True)]
            for name, column in values.items()
            if name != baseline
        }
        return replace(self, measure=measure, gains=gains)


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Cost of an index and of its queries.

    Attributes:
        bytes: bytes of the shards by part.
        postings: lengths of the postings lists.
        l0_query: number of terms per query after pruning.
        l0_document: number of terms per document.
        matched: documents that pass each threshold, over the sampled queries.
        blocks: document blocks and postings for the best 10 documents, over the sampled queries.
        blocks_read: ``blocks.read``.
        sampled: number of sampled queries.
        by_query: cost of every query.
    """

    bytes: dict[str, int]
    postings: PostingsCurve
    l0_query: TermCounts
    l0_document: TermCounts
    matched: list[MatchedDocuments]
    blocks: BlockCounts
    blocks_read: float
    sampled: int
    by_query: QueryCosts


def measure_cost(snapshot: Snapshot, queries: Sequence[SparseQuery], *, sampled: int) -> Efficiency:
    """Measure an open version."""
    count = min(sampled, len(queries))
    some = [queries[i * len(queries) // count] for i in range(count)]
    matched = count_matches(snapshot, some, sampled=_DOCUMENTS).mean(axis=1).tolist() if some else []
    blocks = count_blocks(snapshot, some)
    lengths = [len(query.ids) for query in queries]
    frequencies = snapshot.document_frequencies
    return Efficiency(
        bytes=bytes_by_part(snapshot.version),
        postings=postings_curve(frequencies),
        l0_query=TermCounts.of(lengths),
        l0_document=document_term_counts(snapshot),
        matched=[
            MatchedDocuments(one.kind, one.value, mean)
            for one, mean in zip(THRESHOLDS[: len(matched)], matched, strict=True)
        ],
        blocks=blocks,
        blocks_read=blocks.read,
        sampled=count,
        by_query=QueryCosts(lengths, multiplications([query.ids for query in queries], frequencies).tolist()),
    )
