"""Statistics of sparse vectors that are small enough to check by hand."""

import numpy as np
import pytest

from lsr_prod.storage.formats.sparse import SparseBatch
from lsr_prod_contrib.diagnostics.vectors import TermScores, activated_terms, dead_terms, term_scores

VECTORS = SparseBatch(
    np.array([0, 2, 3, 3, 5], np.int64), np.array([1, 3, 1, 1, 0], np.int32), np.array([4, 1, 2, 3, 1], np.float32)
)
EMPTY = SparseBatch(np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32))


def test_term_scores_leave_out_rare_terms():
    assert term_scores(VECTORS, min_documents=3).std == pytest.approx(np.std([4, 2, 3]))
    assert term_scores(VECTORS, min_documents=3).terms == 1
    assert term_scores(VECTORS, min_documents=1).std == pytest.approx(np.std([4, 2, 3]) / 3)
    assert term_scores(VECTORS, min_documents=4) == TermScores(0.0, 0)


def test_activated_terms_equal_plain_numpy():
    found = activated_terms(VECTORS, 5)
    lengths = [2, 1, 0, 2]
    assert (found.texts, found.empty, found.max) == (4, 1, 2)
    assert (found.mean, found.std) == (pytest.approx(np.mean(lengths)), pytest.approx(np.std(lengths)))
    assert (found.p5, found.p50, found.p95) == tuple(pytest.approx(np.percentile(lengths, q)) for q in (5, 50, 95))
    assert found.activation_rate == pytest.approx(5 / (4 * 5))
    assert (found.weight_mean, found.weight_max) == (pytest.approx(11 / 5), 4.0)


def test_activated_terms_of_no_text_are_zero():
    assert activated_terms(EMPTY, 5).mean == 0.0


def test_dead_terms_are_those_without_documents_and_special_ones_are_counted():
    found = dead_terms(np.array([0, 3, 0, 1, 0]), ["[CLS]", "a", "##b", "c", "[unused7]"])
    assert found["list"] == ["[CLS]", "##b", "[unused7]"]
    assert (found["terms"], found["share"], found["special"]) == (3, 0.6, 2)
