"""Steps of the optimizer, their state, and weights put back."""

import pytest
import torch
from torch import nn

from lsr_prod.config.optimization import OptimizerSettings
from lsr_prod.training.updates import Updates, load_weights


def model() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(3, 2)


def step(layer: nn.Linear, updates: Updates, number: int) -> float:
    updates.begin(number, 10)
    layer(torch.ones(1, 3)).sum().backward()
    return updates.apply()


def test_a_step_has_its_rate_its_norm_and_no_gradient_afterwards() -> None:
    layer = model()
    updates = Updates(layer, OptimizerSettings(learning_rate=0.1, warmup_steps=2, weight_decay=0.0))
    before = layer.weight.detach().clone()
    assert updates.begin(0, 10) == pytest.approx(0.05)
    assert step(layer, updates, 0) == pytest.approx(8**0.5)  # eight gradients of one
    assert torch.allclose(layer.weight, before - 0.05)  # Adam's first step
    assert layer.weight.grad is None


def test_what_was_saved_goes_on_alike() -> None:
    first, second = model(), model()
    one = Updates(first, OptimizerSettings())
    step(first, one, 0)
    other = Updates(second, OptimizerSettings())
    other.load(one.weights(keep=True), dict(one.state()))
    step(first, one, 1)
    step(second, other, 1)
    assert torch.equal(first.weight, second.weight)
    assert one.weights(keep=False) == {}
    with pytest.raises(KeyError):
        load_weights(second, {"weight": torch.zeros(2, 3)})
