import numpy as np
import pytest

from lsr_prod.evaluation.comparisons import (
    SignificanceOptions,
    bootstrap_intervals,
    compare_with_baseline,
    holm,
    mean_intervals,
    paired_randomization,
    paired_t,
)

BASE = {"RR@10": np.array([1.0, 0.5, 0.0, 0.25]), "R@10": np.array([1.0, 1.0, 0.0, 1.0])}
GOOD = {"RR@10": np.array([1.0, 1.0, 0.5, 0.2]), "R@10": np.array([1.0, 1.0, 1.0, 1.0])}


def test_differences_wins_and_losses_equal_counts_by_hand() -> None:
    rr, recall = compare_with_baseline({"good": GOOD, "bm25": BASE}, "bm25", SignificanceOptions())
    assert (rr.measure, rr.system, rr.baseline) == ("RR@10", "good", "bm25")
    assert rr.difference == pytest.approx((0 + 0.5 + 0.5 - 0.05) / 4)
    assert (rr.wins, rr.losses, rr.ties) == (2, 1, 1)
    assert rr.p_randomization == rr.p_adjusted == pytest.approx(4 / 8)  # .5 + .5 - .05 and .5 + .5 + .05, and opposites
    assert (recall.difference, recall.wins, recall.losses, recall.ties) == (0.25, 1, 0, 3)
    assert recall.p_randomization == 1.0  # one difference: both signs are as far from 0
    assert not recall.significant


def test_p_values_of_one_measure_are_corrected_together() -> None:
    dice = np.random.default_rng(0)
    base = {name: dice.uniform(0, 0.5, 40) for name in ("RR@10", "R@10")}
    others = {
        f"s{i}": {name: values + dice.normal(shift, 0.1, 40) for name, values in base.items()}
        for i, shift in enumerate((0.0, 0.03, 0.05, 0.2))
    }
    tests = SignificanceOptions(significance=0.01, resamples=2_000, seed=5)

    found = compare_with_baseline({"base": base, **others}, "base", tests)

    assert [(one.measure, one.system) for one in found] == [(m, s) for m in base for s in others]
    for number, name in enumerate(base):
        family = found[4 * number : 4 * number + 4]
        differences = np.stack([others[system][name] - base[name] for system in others], axis=1)
        assert [one.p_t for one in family] == pytest.approx(paired_t(differences))
        p = np.array([one.p_randomization for one in family])
        assert p == pytest.approx(paired_randomization(differences, resamples=2_000, seed=5))
        assert [one.p_adjusted for one in family] == pytest.approx(holm(p))
        assert [one.significant for one in family] == [one.p_adjusted <= 0.01 for one in family]
        ends = bootstrap_intervals(differences, level=0.99, resamples=2_000, seed=5)
        assert np.array([(one.low, one.high) for one in family]) == pytest.approx(ends)
    assert found[3].significant
    assert not found[0].significant


def test_correction_can_be_bonferroni_or_none() -> None:
    systems = {"bm25": BASE, "a": GOOD, "b": {name: values + 0.1 for name, values in BASE.items()}}
    plain, strict = (
        compare_with_baseline(systems, "bm25", SignificanceOptions(correction=name)) for name in ("none", "bonferroni")
    )
    assert [one.p_adjusted for one in plain] == [one.p_randomization for one in plain]
    assert [one.p_adjusted for one in strict] == [min(1.0, 2 * one.p_randomization) for one in plain]


def test_rounding_errors_count_as_ties() -> None:
    systems = {"a": {"R@10": np.array([0.1 + 0.2])}, "b": {"R@10": np.array([0.3])}}
    (found,) = compare_with_baseline(systems, "b", SignificanceOptions())
    assert (found.difference, found.ties, found.p_t) == (0.0, 1, 1.0)


def test_baseline_alone_has_no_comparison() -> None:
    assert compare_with_baseline({"bm25": BASE}, "bm25", SignificanceOptions()) == []


def test_intervals_are_those_of_every_measure() -> None:
    ends = mean_intervals(BASE, SignificanceOptions(significance=0.1))
    for name, values in BASE.items():
        assert ends[name] == pytest.approx(tuple(bootstrap_intervals(values[:, None], level=0.9)[0]))
    assert mean_intervals({}, SignificanceOptions()) == {}
