"""Document frequencies of terms, and inverse document frequencies."""

import math

import numpy as np
import pytest

from lsr_prod.errors import ArtifactError
from lsr_prod.storage.formats.term_weights import TermCounts


def counted(*documents: list[int], size: int = 5) -> TermCounts:
    return TermCounts.none(size).with_texts([np.array(terms, np.int32) for terms in documents])


def test_idf_weights_equal_the_published_formula():
    counts = counted([0, 1], [0], [0, 3], [])
    assert (counts.documents, counts.frequencies.tolist()) == (
        3,
        [3, 1, 0, 1, 0],
    )  # a document without terms is not counted
    expected = [math.log(1 + (3 - df + 0.5) / (df + 0.5)) for df in (3, 1, 0, 1, 0)]
    assert counts.weights().dtype == np.float32
    assert counts.weights() == pytest.approx(expected, rel=1e-6)
    assert counts.unseen == pytest.approx(math.log(8))  # a term that no document has: df = 0
    assert counts.weights().min() > 0  # also for a term that every document has


def test_counts_of_parts_add_up():
    whole = counted([0, 1], [2], [1, 4])
    parts = counted([0, 1], [2]) + counted([1, 4])
    assert (parts.documents, parts.frequencies.tolist()) == (whole.documents, whole.frequencies.tolist())
    assert TermCounts.none(3).with_texts([]).documents == 0
    assert TermCounts.none(3).weights().tolist() == pytest.approx([math.log(2)] * 3)


def test_counts_round_trip_and_other_content_raises():
    counts = counted([0, 1], [0])
    read = TermCounts.from_bytes(counts.to_bytes(), 5, "file")
    assert (read.documents, read.frequencies.tolist()) == (2, [2, 1, 0, 0, 0])
    with pytest.raises(ArtifactError, match="file has no counts of 6 terms"):
        TermCounts.from_bytes(counts.to_bytes(), 6, "file")
    with pytest.raises(ArtifactError, match="file cannot be read"):
        TermCounts.from_bytes(b"nothing", 5, "file")
    lying = TermCounts(1, np.array([2, 0, 0], np.int64))  # more documents have a term than exist
    with pytest.raises(ArtifactError):
        TermCounts.from_bytes(lying.to_bytes(), 3, "file")
