import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from lsr_prod_contrib.sweeps.plan import Point
from lsr_prod_contrib.sweeps.report import choose_setting
from tests.contrib.sweeps.points import by_threshold, point

SETTINGS, QUERIES = 6, 8


def _chosen(points: list[Point], within: float = 0.1, significance: float = 0.05) -> float:
    choice = choose_setting(points, measure="RR@10", cost="flops", within=within, significance=significance)
    return choice.setting.threshold * 10


def _worse(values: np.ndarray, best: np.ndarray, significance: float) -> bool:
    differences = values - best
    if not differences.any():
        return False
    p = 0.0 if np.ptp(differences) == 0 else stats.ttest_rel(values, best).pvalue
    return bool(differences.sum() < 0 and p < significance)


def _brute_force(rows: np.ndarray, costs: np.ndarray, within: float, significance: float) -> int:
    """Return the choice by its definition; rows: [collections, settings, queries]."""
    means = rows.mean(axis=2)
    best = int(means.mean(axis=0).argmax())
    possible = []
    for i in range(rows.shape[1]):
        close = (means[:, i] >= (1 - within) * means[:, best]).all()
        close = close and means[:, i].mean() >= (1 - within) * means[:, best].mean()
        parts = [(rows[c, i], rows[c, best]) for c in range(len(rows))]
        parts.append((rows[:, i].ravel(), rows[:, best].ravel()))
        if i == best or (close and not any(_worse(one, other, significance) for one, other in parts)):
            possible.append(i)
    return min(possible, key=lambda i: costs[i])


@given(seed=st.integers(0, 10_000), collections=st.integers(1, 3), within=st.sampled_from([0.0, 0.02, 0.2]))
def test_choice_equals_brute_force(seed: int, collections: int, within: float) -> None:
    rng = np.random.default_rng(seed)
    hard = rng.random((collections, 1, QUERIES))
    rows = np.clip(hard + rng.normal(0, 0.1, (collections, SETTINGS, QUERIES)), 0, 1)
    costs = rng.permutation(SETTINGS) + 1.0
    points = by_threshold({f"c{i}": rows[i].tolist() for i in range(collections)}, costs.tolist())
    assert _chosen(points, within) == pytest.approx(_brute_force(rows, costs, within, 0.05))


def test_cheaper_setting_outside_the_share_is_not_chosen() -> None:
    points = by_threshold({"one": [[0.9, 0.8], [0.7, 0.9], [0.85, 0.84]]}, [3.0, 1.0, 2.0])
    assert _chosen(points, within=0.01) == pytest.approx(2)
    assert _chosen(points, within=0.1) == pytest.approx(1)


def test_close_but_significantly_worse_setting_is_not_chosen() -> None:
    best = [0.5 + 0.01 * i for i in range(20)]
    worse = [value - 0.004 - 0.0001 * (i % 3) for i, value in enumerate(best)]
    assert _chosen(by_threshold({"one": [best, worse]}, [2.0, 1.0])) == 0


def test_setting_that_fails_on_one_collection_is_not_chosen() -> None:
    rows = {"one": [[0.8, 0.6], [0.9, 0.69]], "two": [[0.8, 0.6], [0.6, 0.45]]}
    assert _chosen(by_threshold(rows, [2.0, 1.0])) == 0


def test_sentence_names_both_settings_and_costs() -> None:
    points = by_threshold({"one": [[0.9, 0.8], [0.85, 0.84]]}, [3.0, 2.0])
    choice = choose_setting(points, measure="RR@10", cost="flops", within=0.01, significance=0.05)
    sentence = choice.sentence("RR@10", "flops", 0.01)
    assert sentence.startswith("m with qk all, dk all, threshold 0.1, no words: RR@10 0.8450, not significantly worse")
    assert sentence.endswith("with 2 instead of 3 FLOPS")
    alone = choose_setting([point([1.0])], measure="RR@10", cost="bytes", within=0.01, significance=0.05)
    assert "no cheaper setting is within 1.0% of its RR@10" in alone.sentence("RR@10", "bytes", 0.01)


def test_setting_that_is_significantly_better_on_one_collection_can_be_chosen() -> None:
    best = [0.5 + 0.01 * i for i in range(20)]
    better = [value + 0.01 + 0.001 * (i % 3) for i, value in enumerate(best)]
    noisy = [value + (0.3 if i % 2 else -0.34) for i, value in enumerate(best)]
    points = by_threshold({"one": [best, better], "two": [best, noisy]}, [2.0, 1.0])
    means = [one.report.measures["RR@10"] for one in points]
    assert means[1] + means[3] < 2 * means[0]
    assert _chosen(points) == pytest.approx(1)
