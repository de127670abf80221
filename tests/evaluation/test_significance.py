import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from lsr_prod.evaluation.comparisons import (
    bonferroni,
    bootstrap_intervals,
    bootstrap_means,
    holm,
    paired_randomization,
    paired_t,
)

# Five queries: mean .1, standard deviation sqrt(.10 / 4) = .158, t = .1 / sqrt(.025 / 5) = sqrt(2) with 4 degrees.
BY_HAND = np.array([0.2, 0.1, 0.3, 0.0, -0.1])[:, None]

differences = arrays(np.float64, st.integers(2, 8), elements=st.integers(-8, 8).map(lambda value: value / 8))


def test_t_test_equals_closed_form_for_four_degrees_of_freedom() -> None:
    # p = 1 - sin(a) (1 + cos(a)^2 / 2) with tan(a) = t / 2, so sin(a) = 1 / sqrt(3) and cos(a)^2 = 2 / 3.
    assert paired_t(BY_HAND) == pytest.approx([1 - (4 / 3) / 3**0.5])


def test_randomization_test_equals_counted_sign_patterns() -> None:
    # Of the 16 signs of .2, .1, .3, .1 the sum is .5 or more for + + + +, + - + + and + + + -, and for their opposites.
    assert paired_randomization(BY_HAND).tolist() == [6 / 16]


@given(differences)
def test_t_test_equals_scipy(values: np.ndarray) -> None:
    if np.ptp(values) > 0:
        assert paired_t(values[:, None]) == pytest.approx([stats.ttest_1samp(values, 0).pvalue])


@settings(max_examples=50)
@given(differences)
def test_randomization_test_equals_all_sign_patterns_and_scipy(values: np.ndarray) -> None:
    sums = [abs(np.dot(signs, values)) for signs in itertools.product((-1, 1), repeat=len(values))]
    expected = np.mean(np.array(sums) >= abs(values.sum()) - 1e-9)

    (found,) = paired_randomization(values[:, None])

    assert found == pytest.approx(expected)
    theirs = stats.permutation_test(
        (values,), np.mean, permutation_type="samples", vectorized=True, n_resamples=np.inf
    ).pvalue
    assert found == pytest.approx(theirs)


def test_drawn_sign_patterns_agree_with_scipy_and_never_give_zero() -> None:
    values = np.random.default_rng(1).normal([0.0, 0.2, 0.4, 3.0], 1, (60, 4))

    found = paired_randomization(values, resamples=5_000, seed=3)

    theirs = [
        stats.permutation_test((column,), np.mean, permutation_type="samples", n_resamples=5_000, rng=4).pvalue
        for column in values.T
    ]
    assert found == pytest.approx(theirs, abs=0.05)
    assert found[3] == 1 / 5_001
    assert paired_randomization(values, resamples=5_000, seed=3).tolist() == found.tolist()


def test_one_sided_p_value_of_a_loss() -> None:
    def p(losses: np.ndarray) -> float:
        return float(paired_randomization(losses[:, None], one_sided=True)[0])

    assert p(np.zeros(10)) == 1.0
    assert p(np.full(20, 0.1)) < 0.001
    assert p(np.full(20, -0.1)) > 0.99
    assert p(np.array([0.1] * 8 + [-0.1] * 2)) == 56 / 1_024
    assert 0.2 < p(np.random.default_rng(1).normal(0, 1, 50)) < 0.999


def test_draws_do_not_depend_on_size_of_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(1).normal(0.1, 1, (40, 2))
    whole = bootstrap_means(values, resamples=300, seed=5)
    monkeypatch.setattr("lsr_prod.evaluation.comparisons._CELLS", 40 * 7)
    assert bootstrap_means(values, resamples=300, seed=5) == pytest.approx(whole)
    assert 0 < paired_randomization(values, resamples=300)[0] < 1


@pytest.mark.parametrize(
    ("values", "p_t", "p_randomization"),
    [
        ([0.0, 0.0, 0.0], 1.0, 1.0),  # no difference at all
        ([0.5], 1.0, 1.0),  # one query proves nothing
        ([0.0], 1.0, 1.0),
        ([0.25, 0.25, 0.25], 0.0, 2 / 8),  # equal differences: no variance
    ],
)
def test_degenerate_differences_have_defined_p_values(values: list[float], p_t: float, p_randomization: float) -> None:
    column = np.array(values)[:, None]
    assert paired_t(column).tolist() == [p_t]
    assert paired_randomization(column).tolist() == [p_randomization]
    low, high = bootstrap_intervals(column)[0]
    assert (low, high) == (values[0], values[0])


def test_corrections_equal_values_computed_by_hand() -> None:
    p = np.array([0.04, 0.01, 0.03])
    assert holm(p) == pytest.approx([0.06, 0.03, 0.06])  # 3 x .01; 2 x .03; 1 x .04, raised to the one before
    assert bonferroni(p) == pytest.approx([0.12, 0.03, 0.09])
    assert holm(np.array([0.9, 0.6])).tolist() == bonferroni(np.array([0.9, 0.6])).tolist() == [1.0, 1.0]
    assert len(holm(np.zeros(0))) == 0


def test_bootstrap_equals_means_of_drawn_rows() -> None:
    values = np.random.default_rng(0).normal(size=(30, 2))
    drawn = np.random.default_rng(9).integers(0, 30, (500, 30))
    means = np.array([values[rows].mean(axis=0) for rows in drawn])

    assert bootstrap_means(values, resamples=500, seed=9) == pytest.approx(means)
    expected = np.percentile(means, [5, 95], axis=0).T
    assert bootstrap_intervals(values, level=0.9, resamples=500, seed=9) == pytest.approx(expected)


def test_bootstrap_of_two_values_has_their_three_means() -> None:
    values = np.array([[0.0], [1.0]])  # means 0, 1/2 and 1 with probabilities 1/4, 1/2 and 1/4
    means = bootstrap_means(values)[:, 0]
    assert [np.mean(means == value) for value in (0.0, 0.5, 1.0)] == pytest.approx([0.25, 0.5, 0.25], abs=0.02)
    assert bootstrap_intervals(values, level=0.95).tolist() == [[0.0, 1.0]]
    assert bootstrap_intervals(values, level=0.4).tolist() == [[0.5, 0.5]]


def test_interval_agrees_with_scipy() -> None:
    values = np.random.default_rng(2).gamma(2, size=80)
    theirs = stats.bootstrap((values,), np.mean, method="percentile", n_resamples=10_000, rng=1).confidence_interval
    assert bootstrap_intervals(values[:, None])[0] == pytest.approx([theirs.low, theirs.high], abs=0.03)


def test_groups_are_drawn_whole() -> None:
    # Two groups of 3 and 1 queries with sums 3 and 0: means 1, 3 / 4 and 0.
    means = bootstrap_means(np.array([[3.0], [0.0]]), sizes=np.array([3.0, 1.0]))[:, 0]
    assert sorted(set(means.tolist())) == [0.0, 0.75, 1.0]


def test_randomization_of_thousands_of_changed_queries_does_not_overflow():
    differences = np.random.default_rng(0).normal(0.1, 1.0, (1_100, 1))
    assert 0 < paired_randomization(differences, resamples=100)[0] <= 1
