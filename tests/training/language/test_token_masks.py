"""Masks of tokens: how often each is chosen, and what stands in its place."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsr_prod.training.language.masked_language import Masking, mask_rates, mask_tokens, token_weights, uniform

MASK, ORDINARY = 99, np.arange(10, 20)


def test_mask_rates_double_for_new_tokens_with_same_average() -> None:
    # Two new tokens and three old ones among padding: omega sums to 7, so that each unit is worth 0.3 * 5 / 7.
    omega = np.array([[0, 2, 1, 1, 2, 1, 0]], float)
    rates = mask_rates(omega, 0.3)
    assert rates[0] == pytest.approx(omega[0] * 0.3 * 5 / 7)
    assert rates.sum() == pytest.approx(0.3 * 5)


@given(
    st.lists(st.lists(st.sampled_from([0.0, 1.0, 2.0, 50.0]), min_size=6, max_size=6), min_size=1, max_size=4),
    st.floats(0.01, 0.99),
)
def test_mask_rates_keep_average_and_stay_below_one_for_any_weights(weights: list[list[float]], rate: float) -> None:
    omega = np.array(weights)
    rates = mask_rates(omega, rate)
    assert rates.min() >= 0
    assert rates.max() <= 1 + 1e-12
    assert rates.sum(axis=1) == pytest.approx(rate * (omega > 0).sum(axis=1))
    assert not rates[omega == 0].any()
    for row, of_row in zip(rates, omega, strict=True):
        free = (row < 1) & (of_row > 0)
        if free.any():
            shares = row[free] / of_row[free]
            assert shares == pytest.approx(np.full(len(shares), shares[0]))


@given(st.integers(0, 2**40), st.floats(0.05, 0.6))
def test_mask_tokens_follows_rate_and_80_10_10(seed: int, rate: float) -> None:
    ids = np.full((200, 40), 5)
    ids[:, 0] = 1
    rates = mask_rates(np.where(ids == 1, 0.0, 1.0), rate)
    masked = mask_tokens(ids, rates, Masking(np.arange(200), seed=seed, step=3, mask_id=MASK, ordinary=ORDINARY))
    count, total = len(masked.places), 200 * 39
    assert abs(count - rate * total) < 5 * np.sqrt(total * rate * (1 - rate))
    assert (masked.labels == 5).all()
    assert not (masked.places % 40 == 0).any()
    now = masked.input_ids.reshape(-1)[masked.places]
    for share, found in ((0.8, now == MASK), (0.1, now == 5), (0.1, (now != MASK) & (now != 5))):
        assert abs(found.sum() - share * count) < 5 * np.sqrt(count * share * (1 - share))
    assert set(now) <= {MASK, 5, *ORDINARY}
    untouched = np.delete(masked.input_ids.reshape(-1), masked.places)
    assert (untouched == np.delete(ids.reshape(-1), masked.places)).all()


def test_masks_of_row_depend_on_step_but_not_on_other_rows() -> None:
    ids = np.arange(10, 90).reshape(4, 20)
    rates, rows = np.full((4, 20), 0.5), np.array([7, 3, 900, 4])
    settings = {"seed": 1, "mask_id": MASK, "ordinary": ORDINARY}
    together = mask_tokens(ids, rates, Masking(rows, step=2, **settings))
    alone = mask_tokens(ids[2:3], rates[:1], Masking(rows[2:3], step=2, **settings))
    assert (together.input_ids[2] == alone.input_ids[0]).all()
    assert (together.input_ids != mask_tokens(ids, rates, Masking(rows, step=3, **settings)).input_ids).any()


def test_tokens_of_group_are_replaced_in_same_way() -> None:
    ids = np.full((300, 4), 5)
    groups = np.tile([0, 0, 1, 1], (300, 1))
    masking = Masking(np.arange(300), seed=4, step=0, mask_id=MASK, ordinary=ORDINARY)
    hidden = masking.hide(ids, groups >= 0, groups)
    kinds = np.select([hidden == MASK, hidden == 5], [0, 1], 2)
    assert (kinds[:, 0] == kinds[:, 1]).all()
    assert (kinds[:, 0] != kinds[:, 2]).any()


def test_token_weights_and_uniform_numbers_are_in_range() -> None:
    assert token_weights(6, [2, 4], [0, 4], 3.0).tolist() == [0, 1, 3, 1, 0, 1]
    numbers = uniform(5, np.arange(20_000))
    assert 0 <= numbers.min() < numbers.max() < 1
    assert numbers.mean() == pytest.approx(0.5, abs=0.02)
