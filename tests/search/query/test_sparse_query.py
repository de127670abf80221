"""Sparse queries: required terms, order of terms, and rejected values."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsr_prod.errors import QueryError
from lsr_prod.search.query.sparse_query import SparseQuery, Vocabulary, check_k, required_terms

VOCABULARY = Vocabulary(["a", "b", "c", "d"])


@given(st.decimals(0, 1, places=3), st.integers(0, 2000))
def test_threshold_is_applied_as_decimal_number(threshold: Decimal, size: int):
    expected = max(1, math.ceil(threshold * size))
    assert required_terms(size, overlap_threshold=float(threshold), min_terms=1) == expected


def test_threshold_028_of_25_terms_is_seven():
    assert math.ceil(0.28 * 25) == 8
    assert required_terms(25, overlap_threshold=0.28, min_terms=1) == 7
    assert required_terms(5, overlap_threshold=np.float32(0.4), min_terms=1) == 2
    assert required_terms(3, overlap_threshold=Fraction(1, 3), min_terms=1) == 1


def test_required_is_larger_of_share_and_count():
    assert required_terms(10, overlap_threshold=0.0, min_terms=1) == 1
    assert required_terms(10, overlap_threshold=0.35, min_terms=2) == 4
    assert required_terms(10, overlap_threshold=0.1, min_terms=3) == 3
    assert required_terms(0, overlap_threshold=1.0, min_terms=1) == 1


@pytest.mark.parametrize("threshold", [-0.1, 1.0001, math.nan, math.inf, True, "0.4", None])
def test_overlap_threshold_outside_0_to_1_is_rejected(threshold):
    with pytest.raises(QueryError, match="overlap_threshold"):
        required_terms(5, overlap_threshold=threshold, min_terms=1)


@pytest.mark.parametrize("min_terms", [0, -1, 1.5, True])
def test_min_terms_below_one_is_rejected(min_terms):
    with pytest.raises(QueryError, match="min_terms"):
        required_terms(5, overlap_threshold=0.0, min_terms=min_terms)


@pytest.mark.parametrize("k", [-1, 10_001, 1.5, True, None])
def test_k_out_of_range_is_rejected(k):
    with pytest.raises(QueryError, match="k="):
        check_k(k)


def test_terms_are_sorted_by_descending_weight_then_ascending_id():
    query = SparseQuery.from_vector({"c": 1.0, 0: 1.0, "b": 3.0, "zebra": 2.0, "d": 0.0}, VOCABULARY)
    assert query.terms == ("b", "zebra", "a", "c")
    assert query.ids.tolist() == [1, -1, 0, 2]
    assert query.top(2).terms == ("b", "zebra")
    assert query.top(None) is query


@given(
    st.dictionaries(st.integers(0, 3), st.sampled_from([0.5, 1.0, 2.0, 7.5]), max_size=4),
    st.sampled_from([None, 1, 2, 5]),
    st.integers(1, 16),
)
def test_mass_keeps_the_fewest_terms_that_hold_the_share(vector: dict[int, float], qk: int | None, part: int):
    heaviest = sorted(vector.items(), key=lambda item: (-item[1], item[0]))[:qk]
    enough = part * sum(weight for _, weight in heaviest)  # sixteenths, so that every sum is exact
    sizes = range(1, len(heaviest) + 1)
    size = next((n for n in sizes if 16 * sum(weight for _, weight in heaviest[:n]) >= enough), 0)
    kept = SparseQuery.from_vector(vector, VOCABULARY).top(qk, part / 16)
    assert kept.ids.tolist() == [term for term, _ in heaviest[:size]]


@pytest.mark.parametrize(
    "vector",
    [
        {"a": math.nan},
        {"a": math.inf},
        {"a": -1.0},
        {"a": 1e39},
        {"a": "1"},
        {4: 1.0},
        {-1: 1.0},
        {True: 1.0},
        {1.0: 1.0},
    ],
)
def test_weights_and_ids_out_of_range_are_rejected(vector):
    with pytest.raises(QueryError, match="is not possible"):
        SparseQuery.from_vector(vector, VOCABULARY)


def test_duplicate_term_is_rejected():
    with pytest.raises(QueryError, match="given twice"):
        SparseQuery.from_vector({"a": 1.0, 0: 1.0}, VOCABULARY)


def test_weights_that_overflow_float32_score_are_rejected():
    with pytest.raises(QueryError, match="float32"):
        SparseQuery.from_vector({"a": 1e38}, VOCABULARY).scaled(1.0)


@pytest.mark.parametrize("qk", [0, -1, 2.0, True])
def test_qk_below_one_is_rejected(qk):
    with pytest.raises(QueryError, match="qk"):
        SparseQuery.from_vector({"a": 1.0}, VOCABULARY).top(qk)
