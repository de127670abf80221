import itertools

import numpy as np
import pytest

from benchmarks.train.paired import compare


def test_three_queries_that_all_gain_are_as_extreme_as_two_of_eight_draws_of_signs() -> None:
    found = compare([np.array([1.0, 2.0, 4.0])], [np.array([0.0, 1.0, 3.0])], ["a", "b", "c"])

    assert found.difference == 1.0
    assert found.p == pytest.approx(2 / 8, abs=0.02)
    assert (found.low, found.high) == (1.0, 1.0)


def test_queries_of_one_group_get_one_sign() -> None:
    found = compare([np.ones(6)], [np.zeros(6)], ["a", "a", "a", "b", "b", "b"])

    assert found.p == pytest.approx(2 / 4, abs=0.02)


@pytest.mark.parametrize("seed", range(4))
def test_the_test_agrees_with_all_draws_of_signs(seed: int) -> None:
    differences = np.random.default_rng(seed).normal(0.4, 1, 8)
    draws = [abs(np.dot(signs, differences)) for signs in itertools.product((-1, 1), repeat=8)]
    exact = np.mean(np.array(draws) >= abs(differences.sum()) - 1e-9)

    found = compare([differences], [np.zeros(8)], list("abcdefgh"))

    assert found.p == pytest.approx(exact, abs=0.02)
    assert found.low < differences.mean() < found.high


def test_the_interval_is_that_of_the_mean() -> None:
    values = np.random.default_rng(0).normal(0.2, 1, 400)

    found = compare([values], [np.zeros(400)], [str(number) for number in range(400)])

    half = 1.96 * values.std() / 20
    assert found.low == pytest.approx(values.mean() - half, abs=0.01)
    assert found.high == pytest.approx(values.mean() + half, abs=0.01)


def test_seeds_are_averaged_and_counted() -> None:
    ours, theirs = [np.array([1.0, 0.0]), np.array([0.0, 0.5])], [np.zeros(2), np.ones(2)]

    found = compare(ours, theirs, ["a", "b"])

    assert found.difference == pytest.approx(-0.125)
    assert (found.wins, found.seeds) == (1, 2)


def test_equal_models_do_not_differ() -> None:
    found = compare([np.ones(5)], [np.ones(5)], list("abcde"))

    assert (found.difference, found.p, found.wins) == (0, 1, 0)


def test_a_detectable_difference_is_significant_in_four_of_five_cases() -> None:
    random, groups = np.random.default_rng(0), [str(number) for number in range(100)]
    noise = random.normal(0, 1, (200, 100))
    difference = compare([noise[0]], [np.zeros(100)], groups).detectable
    assert difference == pytest.approx(2.8 / 10, rel=0.15)  # of 100 values with a standard deviation of 1
    found = [compare([one + 0.28], [np.zeros(100)], groups, rounds=400).p < 0.05 for one in noise]
    assert np.mean(found) == pytest.approx(0.8, abs=0.08)
