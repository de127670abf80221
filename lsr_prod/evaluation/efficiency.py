"""Cost of retrieval that follows from an index and its queries, without a clock.

FLOPS (papers/esplade-pretraining, eq. 1), number of terms per query and document, lengths of postings lists, and bytes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lsr_prod.formats.index import IndexVersion
from lsr_prod.formats.shard import array_name
from lsr_prod.search.snapshot import Snapshot

_ROWS = 1 << 20  # documents whose lengths are read at once
_POINTS = 200  # of the curve


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


def flops(queries: Sequence[Sequence[int]], document_frequency: Mapping[int, int], documents: int) -> float:
    """Return the multiplications per pair (query, document): sum_q sum_{t in q} |P_t| / (|Q| |D|)."""
    if not queries or not documents:
        return 0.0
    touched = sum(document_frequency.get(term, 0) for query in queries for term in query)
    return touched / (len(queries) * documents)


def multiplications(
    queries: Sequence[npt.NDArray[np.int32]], document_frequencies: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return the multiplications of every query over the whole collection: sum_{t in q} |P_t|.

    Their mean, divided by the number of documents, is ``flops``.

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
    total: dict[str, int] = {}
    for shard in version.shards:
        for part, size in shard.bytes_by_part.items():
            total[part] = total.get(part, 0) + size
    return total


def _percentile_of_histogram(histogram: npt.NDArray[np.int64], q: float) -> float:
    """Return the percentile that ``np.percentile`` interpolates between the values of a histogram."""
    place = (int(histogram.sum()) - 1) * q / 100
    below = int(place)
    ends = np.cumsum(histogram)
    low, high = np.searchsorted(ends, [below, min(below + 1, int(ends[-1]) - 1)], side="right")
    return float(low + (high - low) * (place - below))
