"""BM25 impacts in eight bits."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsr_prod.storage.formats.term_weights import IMPACT_STEP, inverse_frequencies, word_impacts


@given(st.integers(1, 1 << 30), st.integers(1, 1 << 31), st.floats(1, 1e6))
def test_impact_is_the_saturation_within_half_a_step(count, length, average):
    [impact] = word_impacts(np.array([count]), np.array([max(count, length)]), average)
    exact = count * 2.2 / (count + 1.2 * (0.25 + 0.75 * max(count, length) / average))
    assert 1 <= impact <= 255
    assert impact == 1 or abs(impact * IMPACT_STEP - exact) <= IMPACT_STEP / 2 * (1 + 1e-9)


def test_impact_rises_with_count_and_falls_with_length():
    assert np.all(np.diff(word_impacts(np.arange(1, 20), np.full(19, 30), 30.0).astype(int)) > 0)
    assert np.all(np.diff(word_impacts(np.ones(9, int), np.arange(10, 100, 10), 30.0).astype(int)) < 0)
    assert word_impacts(np.array([1]), np.array([1 << 31]), 1.0).tolist() == [1]


def test_rarer_words_weigh_more_and_all_weights_are_positive():
    found = inverse_frequencies(100, np.array([0, 1, 50, 100]))
    assert found == pytest.approx([math.log(1 + (100 - n + 0.5) / (n + 0.5)) for n in (0, 1, 50, 100)])
    assert found[-1] > 0
