import torch

from lsr_prod.config.train import ValidationSettings
from lsr_prod.training.observers.best import Best

SETTINGS = ValidationSettings(corpus="c", queries="q", qrels="r", keep_best="R@10")


def test_best_keeps_first_of_equal_values() -> None:
    best = Best(SETTINGS)
    for step, value in enumerate((0.2, 0.5, 0.5, 0.4)):
        best.offer(step, {"R@10": value, "RR@10": -value}, {"w": torch.tensor(step)})
    assert (best.step, best.value) == (1, 0.5)
    assert best.weights == {"w": torch.tensor(1)}


def test_best_keeps_nothing_without_keep_best() -> None:
    best = Best(SETTINGS.model_copy(update={"keep_best": None}))
    best.offer(1, {"R@10": 1.0}, {"w": torch.tensor(1)})
    assert (best.step, best.weights) == (None, None)


def test_best_resumes_from_checkpoint() -> None:
    best, again = Best(SETTINGS), Best(SETTINGS)
    best.offer(5, {"R@10": 0.7}, {"w": torch.tensor(5)})
    again.load_state(best.state(), best.weights)
    again.offer(6, {"R@10": 0.6}, {"w": torch.tensor(6)})
    assert (again.step, again.value) == (5, 0.7)
    again.offer(7, {"R@10": 0.8}, {"w": torch.tensor(7)})
    assert again.step == 7
