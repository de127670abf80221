"""Cost of retrieval that follows from an index and its queries, without a clock.

FLOPS (papers/esplade-pretraining, eq. 1), number of terms per query and document, lengths of postings lists, postings
that a search reads, bytes, and number of documents that pass a threshold by count, ratio or weight.

These documents are counted over whole shards at once: a product of two sparse matrices, documents x terms and terms x
queries, gives the number and the weight of the shared terms of every pair; each threshold is a comparison with it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from scipy import sparse

from lsr_prod.search.index_snapshot import Snapshot
from lsr_prod.search.query.sparse_query import SparseQuery, required_terms
from lsr_prod.search.shard.shard_reader import ShardReader
from lsr_prod.storage.formats import index_format, shard_format

WEIGHT_TOLERANCE = 1e-5  # of shares of a query's weight, whose float32 sums are rounded

_PER_PRODUCT = 8192  # documents per product
_QUERIES = 200  # queries per product
_ROWS = 1 << 20  # documents whose lengths are read at once
_POINTS = 200  # of the curve
_DOCUMENTS = 1_000_000  # documents that are read for counts by threshold; larger indexes get estimates


@dataclass(frozen=True, slots=True)
class Threshold:
    """Condition on the shared terms of a query and a document; one shared term is always required."""

    # ``count``: number of shared terms; ``ratio``: share of the query's terms; ``weight``: share of the sum of
    # the query's weights
    kind: Literal["count", "ratio", "weight"]
    value: float  # smallest number or share

    def required(self, terms: int) -> int:
        """Return the number of terms that a document must share with a query; 1 for a weight."""
        if self.kind == "weight":
            return 1
        if self.kind == "count":
            return required_terms(terms, overlap_threshold=0.0, min_terms=int(self.value))
        return required_terms(terms, overlap_threshold=self.value, min_terms=1)


THRESHOLDS = (
    *(Threshold("count", value) for value in (1, 2, 3, 4)),
    *(Threshold("ratio", value) for value in (0.1, 0.2, 0.3, 0.4, 0.6)),
    *(Threshold("weight", value) for value in (0.1, 0.2, 0.3, 0.4, 0.6)),
)
"""Thresholds of a report."""


@dataclass(frozen=True, slots=True)
class TermCounts:
    """Number of terms per vector (L0)."""

    mean: float  # arithmetic mean
    p50: float  # median
    p95: float  # 95th percentile

    @classmethod
    def of(cls, lengths: Sequence[int] | np.typing.NDArray[np.int64]) -> "TermCounts":
        """Summarize the numbers of terms of some vectors; 0 without vectors."""
        counts = np.asarray(lengths, np.int64)
        return cls.of_histogram(np.bincount(counts)) if len(counts) else cls(0.0, 0.0, 0.0)

    @classmethod
    def of_histogram(cls, histogram: np.typing.NDArray[np.int64]) -> "TermCounts":
        """Summarize the numbers of vectors by number of terms."""
        total = int(histogram.sum())
        if not total:
            return cls(0.0, 0.0, 0.0)
        mean = float(histogram @ np.arange(len(histogram))) / total
        return cls(mean, *(_percentile_of_histogram(histogram, q) for q in (50, 95)))


@dataclass(frozen=True, slots=True)
class PostingsCurve:
    """Lengths of the postings lists of all V output terms, empty lists included."""

    mean: float  # arithmetic mean
    variance: float  # variance over the lists
    std: float  # its square root
    max: int  # longest list
    empty: int  # number of empty lists
    # rank, from 1 for the longest list, and length; at most 200 points at logarithmic distances, with the first
    # and the last rank
    curve: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class MatchedDocuments:
    """Documents that pass a threshold; estimated from a sample in an index of more than a million documents."""

    kind: str  # ``count``, ``ratio`` or ``weight``; see ``Threshold``
    threshold: float  # smallest number or share
    documents: float  # mean number of documents per query


@dataclass(frozen=True, slots=True)
class QueryCosts:
    """Cost of every query, and what each system gains by it."""

    terms: list[int]  # number of terms after pruning
    # number of postings of these terms, all of which a search reads; their mean per document is FLOPS
    multiplications: list[int]
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
        sampled: number of sampled queries.
        postings_read: mean number of postings that a search reads: those of the query's terms; 0 without queries.
        by_query: cost of every query.
    """

    bytes: dict[str, int]
    postings: PostingsCurve
    l0_query: TermCounts
    l0_document: TermCounts
    matched: list[MatchedDocuments]
    sampled: int
    postings_read: float
    by_query: QueryCosts


def measure_cost(snapshot: Snapshot, queries: Sequence[SparseQuery], *, sampled: int) -> Efficiency:
    """Measure an open version."""
    count = min(sampled, len(queries))
    some = [queries[i * len(queries) // count] for i in range(count)]
    matched = count_matches(snapshot, some, sampled=_DOCUMENTS).mean(axis=1).tolist() if some else []
    lengths = [len(query.ids) for query in queries]
    frequencies = snapshot.document_frequencies
    costs = multiplications([query.ids for query in queries], frequencies)
    return Efficiency(
        bytes=bytes_by_part(snapshot.version),
        postings=postings_curve(frequencies),
        l0_query=TermCounts.of(lengths),
        l0_document=document_term_counts(snapshot),
        matched=[
            MatchedDocuments(one.kind, one.value, mean)
            for one, mean in zip(THRESHOLDS[: len(matched)], matched, strict=True)
        ],
        sampled=count,
        postings_read=float(costs.mean()) if len(costs) else 0.0,
        by_query=QueryCosts(lengths, costs.tolist()),
    )


def count_matches(
    snapshot: Snapshot,
    queries: Sequence[SparseQuery],
    thresholds: Sequence[Threshold] = THRESHOLDS,
    *,
    sampled: int | None = None,
) -> np.typing.NDArray[np.int64]:
    """Count the documents that pass each threshold for each query.

    Returns:
        int64 [t, n].
    """
    starts = range(0, len(queries), _QUERIES)
    alive = sum(len(alive_ordinals(reader)) for reader in snapshot.readers.values()) if sampled is not None else 0
    step = 1 if sampled is None else max(1, -(-alive // sampled))
    parts = [_count(snapshot, queries[start : start + _QUERIES], thresholds, step) for start in starts]
    return np.concatenate([np.zeros((len(thresholds), 0), np.int64), *parts], axis=1)


def multiplications(
    queries: Sequence[np.typing.NDArray[np.int32]], document_frequencies: np.typing.NDArray[np.int64]
) -> np.typing.NDArray[np.int64]:
    """Return the multiplications of every query over the whole collection: sum_{t in q} |P_t|.

    Their mean, divided by the number of documents, is FLOPS (papers/esplade-pretraining, eq. 1).

    Returns:
        int64 [Q].
    """
    return np.array([document_frequencies[ids[ids >= 0]].sum() for ids in queries], np.int64)


def bytes_by_part(version: index_format.IndexVersion) -> dict[str, int]:
    """Return the bytes of all shards by part: ``impacts``, ``forward``, ``tantivy`` and ``docs``."""
    total = Counter[str]()
    for shard in version.shards:
        total.update(shard.bytes_by_part)
    return dict(total)


def postings_curve(lengths: np.typing.NDArray[np.int64]) -> PostingsCurve:
    """Return moments and curve of the lengths of postings lists."""
    ranked = np.sort(lengths)[::-1]
    if not len(ranked):
        return PostingsCurve(0.0, 0.0, 0.0, 0, 0, [])
    ranks = np.unique(np.rint(np.geomspace(1, len(ranked), _POINTS)).astype(np.int64))
    return PostingsCurve(
        mean=float(ranked.mean()),
        variance=float(ranked.var()),
        std=float(ranked.std()),
        max=int(ranked[0]),
        empty=int((ranked == 0).sum()),
        curve=[(rank, int(ranked[rank - 1])) for rank in ranks.tolist()],
    )


def document_term_counts(snapshot: Snapshot) -> TermCounts:
    """Return the number of terms in the postings per document that can be found.

    Memory does not grow with the number of documents.
    """
    histogram = np.zeros(1, np.int64)
    for reader in snapshot.readers.values():
        files, offsets = reader.shard.files, reader.shard.arrays.forward_offsets
        for start in range(0, reader.shard.manifest.documents, _ROWS):
            stop = min(start + _ROWS, reader.shard.manifest.documents)
            files.verify_items(offsets, shard_format.array_name("forward_offsets"), start, stop + 1)
            lengths = np.minimum(np.diff(offsets[start : stop + 1]), reader.dk)
            if reader.alive is not None:
                lengths = lengths[reader.alive[start:stop] != 0]
            counts = np.bincount(lengths, minlength=len(histogram))
            counts[: len(histogram)] += histogram
            histogram = counts
    return TermCounts.of_histogram(histogram)


def percentile(values: Sequence[float], q: float) -> float:
    """Return the ``q``-th percentile (0..100), or 0.0 if there are no values."""
    return float(np.percentile(np.asarray(values), q)) if values else 0.0


def alive_ordinals(reader: ShardReader) -> np.typing.NDArray[np.int64]:
    """Return the ordinals of the documents that are not deleted."""
    if reader.alive is None:
        return np.arange(reader.shard.manifest.documents)
    return np.flatnonzero(reader.alive)


def _count(
    snapshot: Snapshot, queries: Sequence[SparseQuery], thresholds: Sequence[Threshold], step: int
) -> np.typing.NDArray[np.int64]:
    size, n = len(snapshot.vocabulary.names), len(queries)
    ones, shares = _query_matrices(queries, size)
    required = np.array([[one.required(len(query.ids)) for query in queries] for one in thresholds], np.int64)
    matched = np.zeros((len(thresholds), n), np.int64)
    for reader in snapshot.readers.values():
        alive = alive_ordinals(reader)
        found = alive[::step]
        counted = np.zeros_like(matched)
        for start in range(0, len(found), _PER_PRODUCT):
            offsets, terms, _ = reader.shard.forward.gather(found[start : start + _PER_PRODUCT], reader.dk)
            cells = np.ones(len(terms))
            documents = sparse.csr_array((cells, terms.astype(np.int32), offsets), shape=(len(offsets) - 1, size))
            shared = documents @ ones  # [documents, queries], number of shared terms
            covered = documents @ shares  # the same pairs, share of the query's weight
            for i, threshold in enumerate(thresholds):
                if threshold.kind == "weight":
                    pairs = covered.indices[covered.data >= threshold.value - WEIGHT_TOLERANCE]
                else:
                    pairs = shared.indices[shared.data >= required[i][shared.indices]]
                counted[i] += np.bincount(pairs, minlength=n)
        matched += counted if step == 1 else np.rint(counted * (len(alive) / max(1, len(found)))).astype(np.int64)
    return matched


def _query_matrices(queries: Sequence[SparseQuery], size: int) -> tuple[sparse.csr_array, sparse.csr_array]:
    """Return [V, n] matrices of ones and of shares of each query's weight; unknown terms count in the whole weight."""
    rows, columns, shares = [], [], []
    for i, query in enumerate(queries):
        known = query.ids >= 0
        rows.append(query.ids[known])
        columns.append(np.full(int(known.sum()), i))
        shares.append(query.weights[known] / query.weights.sum(dtype=np.float64))
    row, column = np.concatenate([np.zeros(0, np.int32), *rows]), np.concatenate([np.zeros(0, np.int64), *columns])
    values = np.concatenate([np.zeros(0), *shares])
    shape = (size, len(queries))
    return (
        sparse.csr_array((np.ones(len(row)), (row, column)), shape=shape),
        sparse.csr_array((values, (row, column)), shape=shape),
    )


def _percentile_of_histogram(histogram: np.typing.NDArray[np.int64], q: float) -> float:
    """Return the percentile that ``np.percentile`` interpolates between the values of a histogram."""
    place = (int(histogram.sum()) - 1) * q / 100
    below = int(place)
    ends = np.cumsum(histogram)
    low, high = np.searchsorted(ends, [below, min(below + 1, int(ends[-1]) - 1)], side="right")
    return float(low + (high - low) * (place - below))
