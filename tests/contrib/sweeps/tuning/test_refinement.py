import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsr_prod_contrib.sweeps.tuning import Candidate, best_candidate, grid

WEIGHTS = grid(1 / 64, 64, 4)
THRESHOLDS = [0.0, 0.4]


class Curve:
    """A measure with one maximum and small waves; counts its calls."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.center, self.width = rng.uniform(-4, 4), rng.uniform(1.5, 4)
        self.phase, self.none = rng.uniform(0, 6, 2), rng.uniform(0.3, 0.6)
        self.asked: set[Candidate] = set()

    def __call__(self, one: Candidate) -> float:
        self.asked.add(one)
        if one.hybrid_weight is None:
            return float(self.none - one.threshold / 10)
        place = math.log2(one.hybrid_weight)
        waves = 0.002 * (math.sin(3 * place + self.phase[0]) + math.sin(7 * place + self.phase[1]))
        return float(0.6 * math.exp(-(((place - self.center) / self.width) ** 2) / 2) + waves - one.threshold / 10)


@given(st.integers(0, 10_000))
def test_refinement_ends_within_5_thousandths_of_the_exhaustive_maximum(seed: int) -> None:
    exhaustive, refined = Curve(seed), Curve(seed)
    best = best_candidate(exhaustive, THRESHOLDS, WEIGHTS, exhaustive=True)
    found = best_candidate(refined, THRESHOLDS, WEIGHTS, exhaustive=False)
    assert len(exhaustive.asked) == 2 * (len(WEIGHTS) + 1)
    assert len(refined.asked) <= 2 * 25
    assert refined(found) >= exhaustive(best) - 0.005


@pytest.mark.parametrize("exhaustive", [False, True])
def test_equal_values_prefer_no_words_and_the_highest_threshold(exhaustive: bool) -> None:
    assert best_candidate(lambda _: 0.5, THRESHOLDS, WEIGHTS, exhaustive=exhaustive) == Candidate(0.4, None)


@pytest.mark.parametrize("count", [1, 2, 8, 9, 10, 50])
@pytest.mark.parametrize("place", [0, 1, -1])
def test_maximum_at_the_end_of_any_grid_is_found(count: int, place: int) -> None:
    weights = [2.0**i for i in range(count)]
    target = math.log2(weights[min(place, count - 1)])
    found = best_candidate(
        lambda one: -1e9 if one.hybrid_weight is None else -abs(math.log2(one.hybrid_weight) - target),
        [0.0],
        weights,
        exhaustive=False,
    )
    assert found.hybrid_weight == 2**target
