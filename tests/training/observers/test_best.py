import json

import pytest
import torch

from lsr_prod.config.training import ValidationSettings
from lsr_prod.training.loop.result import Best

SETTINGS = ValidationSettings(corpus="c", queries="q", qrels="r", keep_best="R@10")


def test_best_keeps_first_of_equal_values() -> None:
    best = Best(SETTINGS)
    for step, value in enumerate((0.2, 0.5, 0.5, 0.4)):
        best.offer(step, {"R@10": value, "RR@10": -value}, {"w": torch.tensor(step)})
    assert (best.step, best.value) == (1, 0.5)
    assert best.weights == {"w": torch.tensor(1)}


@pytest.mark.parametrize("keep_best", [None, "last"])
def test_best_keeps_nothing_without_keep_best(keep_best: str | None) -> None:
    best = Best(SETTINGS.model_copy(update={"keep_best": keep_best}))
    best.offer(1, {"R@10": 1.0, "RR@10": 1.0}, {"w": torch.tensor(1)})
    assert (best.step, best.weights) == (None, None)


def test_best_resumes_from_checkpoint() -> None:
    best, again = Best(SETTINGS), Best(SETTINGS)
    best.offer(5, {"R@10": 0.7}, {"w": torch.tensor(5)})
    again.load_state(best.state(), best.weights)
    again.offer(6, {"R@10": 0.6}, {"w": torch.tensor(6)})
    assert (again.step, again.value) == (5, 0.7)
    again.offer(7, {"R@10": 0.8}, {"w": torch.tensor(7)})
    assert again.step == 7


STOPPING = SETTINGS.model_copy(update={"stop_after": 2, "min_delta": 0.1})


def _stops(best: Best, values: list[float]) -> list[bool]:
    found = []
    for step, value in enumerate(values):
        best.offer(step, {"RR@10": 0.0, "R@10": value}, {})
        found.append(best.stopped)
    return found


def test_training_stops_after_validations_without_improvement_above_min_delta() -> None:
    best = Best(STOPPING)
    assert _stops(best, [0.2, 0.25, 0.31, 0.42, 0.35, 0.45]) == [False, False, False, False, False, True]
    assert (best.step, best.value) == (5, 0.45), "min_delta does not decide which weights are the best"


def test_training_without_stop_after_never_stops() -> None:
    assert not any(_stops(Best(SETTINGS), [0.5] * 50))
    assert not Best(None).stopped


def test_early_stopping_compares_first_measure_without_keep_best() -> None:
    best = Best(STOPPING.model_copy(update={"keep_best": None, "measures": ["R@10"]}))
    assert _stops(best, [0.2, 0.2, 0.2]) == [False, False, True]
    assert best.weights is None


def test_early_stopping_resumes_from_checkpoint() -> None:
    whole, first, second = Best(STOPPING), Best(STOPPING), Best(STOPPING)
    values = [0.2, 0.5, 0.55, 0.3, 0.9]
    expected = _stops(whole, values)
    _stops(first, values[:3])
    second.load_state(json.loads(json.dumps(first.state())), {})
    assert _stops(second, values[3:]) == expected[3:] == [True, False]


def test_min_delta_without_stop_after_is_refused() -> None:
    with pytest.raises(ValueError, match="min_delta has no effect without stop_after"):
        ValidationSettings(corpus="c", queries="q", qrels="r", min_delta=0.1)
