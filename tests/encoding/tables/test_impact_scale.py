import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsr_prod.encoding.tables.impact_scale import impact_scale

some_weights = st.lists(st.floats(2**-10, 16, width=32), min_size=1, max_size=50).map(np.float32)


@given(some_weights, st.sampled_from([4, 8, 16]))
def test_step_covers_the_largest_weight_with_headroom(weights: np.ndarray, bits: int):
    scale = impact_scale(weights, bits, documents=3)
    top, grid = 2**bits - 1, 2**16 if bits <= 8 else 2**24
    largest = float(weights.max())
    assert largest * 1.05 <= scale.step * top * (1 + 1e-12)
    assert scale.step * top <= largest * 1.05 + top / grid
    assert (scale.step * grid).is_integer()
    assert (scale.clipped, scale.documents) == (0.0, 3)


@given(some_weights, st.sampled_from([4, 8, 16]))
def test_error_is_the_rounding_error_of_the_weights(weights: np.ndarray, bits: int):
    scale = impact_scale(weights, bits, documents=1)
    errors = [
        abs(float(weight) - max(1, round(float(weight) / scale.step)) * scale.step) for weight in weights.tolist()
    ]
    assert scale.largest_error == pytest.approx(max(errors), abs=1e-12)
    assert scale.error == pytest.approx(sum(errors) / sum(weights.tolist()), abs=1e-9)
    assert scale.largest_error <= scale.step * (1 + 1e-9)


def test_given_step_is_kept_and_clipped_weights_are_counted():
    weights = np.float32([0.5, 1.0, 1.5, 4.0])
    scale = impact_scale(weights, 4, documents=2, step=0.1)
    assert scale.step == 0.1
    assert scale.clipped == 0.25
    assert scale.largest_error == pytest.approx(4.0 - 15 * 0.1)
    assert scale.error == pytest.approx(2.5 / 7.0, rel=1e-5)


def test_step_without_weights_is_positive():
    scale = impact_scale(np.float32([]), 8, documents=0)
    assert scale.step == pytest.approx(1.05 / 255, abs=2**-16)
    assert (scale.error, scale.largest_error, scale.clipped, scale.documents) == (0.0, 0.0, 0.0, 0)
    assert impact_scale(np.float32([1e-9]), 8, documents=1).step == 2**-16


def test_error_falls_with_more_bits():
    weights = np.random.default_rng(7).gamma(2.0, 0.3, 1000).astype(np.float32)
    errors = [impact_scale(weights, bits, documents=1).error for bits in (4, 8, 16)]
    assert errors[0] > 10 * errors[1] > 1000 * errors[2] > 0
