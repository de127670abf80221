"""Cost of retrieval that follows from an index and its queries, without a clock.

FLOPS (papers/esplade-pretraining, eq. 1), number of terms per query and document, lengths of postings lists, postings
that a search reads, and bytes.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from lsr_prod.evaluation.matched import THRESHOLDS, count_matches
from lsr_prod.search.query.sparse_query import SparseQuery
from lsr_prod.search.snapshot import Snapshot
from lsr_prod.storage.formats.index import IndexVersion
from lsr_prod.storage.formats.shard import array_name

_ROWS = 1 << 20  # documents whose lengths are read at once
_POINTS = 200  # of the curve
_DOCUMENTS = 1_000_000  # documents that are read for counts by threshold; larger indexes get estimates


@dataclass(frozen=True, slots=True)
class TermCounts:
    """Number of terms per vector (L0)."""

    mean: float  # arithmetic mean
    p50: float  # median
    p95: float  # 95th percentile

    @classmethod
    def of(cls, lengths: Sequence[int] | npt.NDArray[np.int64]) -> "TermCounts":
        """Summarize the numbers of terms of some vectors; 0 without vectors."""
        counts = np.asarray(lengths, np.int64)
        return cls.of_histogram(np.bincount(counts)) if len(counts) else cls(0.0, 0.0, 0.0)

    @classmethod
    def of_histogram(cls, histogram: npt.NDArray[np.int64]) -> "TermCounts":
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

    kind: str  # ``count``, ``ratio`` or ``weight``; see ``matched.Threshold``
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


def multiplications(
    queries: Sequence[npt.NDArray[np.int32]], document_frequencies: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return the multiplications of every query over the whole collection: sum_{t in q} |P_t|.

    Their mean, divided by the number of documents, is FLOPS (papers/esplade-pretraining, eq. 1).

    Returns:
        int64 [Q].
    """
    return np.array([document_frequencies[ids[ids >= 0]].sum() for ids in queries], np.int64)


def percentile(values: Sequence[float], q: float) -> float:
    """Return the ``q``-th percentile (0..100), or 0.0 if there are no values."""
    return float(np.percentile(np.asarray(values), q)) if values else 0.0


def postings_curve(lengths: npt.NDArray[np.int64]) -> PostingsCurve:
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
            files.verify_items(offsets, array_name("forward_offsets"), start, stop + 1)
            lengths = np.minimum(np.diff(offsets[start : stop + 1]), reader.dk)
            if reader.alive is not None:
                lengths = lengths[reader.alive[start:stop] != 0]
            counts = np.bincount(lengths, minlength=len(histogram))
            counts[: len(histogram)] += histogram
            histogram = counts
    return TermCounts.of_histogram(histogram)


def bytes_by_part(version: IndexVersion) -> dict[str, int]:
    """Return the bytes of all shards by part: ``impacts``, ``forward``, ``tantivy`` and ``docs``."""
    total = Counter[str]()
    for shard in version.shards:
        total.update(shard.bytes_by_part)
    return dict(total)


def _percentile_of_histogram(histogram: npt.NDArray[np.int64], q: float) -> float:
    """Return the percentile that ``np.percentile`` interpolates between the values of a histogram."""
    place = (int(histogram.sum()) - 1) * q / 100
    below = int(place)
    ends = np.cumsum(histogram)
    low, high = np.searchsorted(ends, [below, min(below + 1, int(ends[-1]) - 1)], side="right")
    return float(low + (high - low) * (place - below))
