"""AdamW, its steps, its state, and weights copied back."""

import pytest
import torch
from torch import nn

from lsr_prod.config.language import OptimizerSettings
from lsr_prod.training.replica import (
    OptimizerStep,
    load_optimizer,
    load_weights,
    make_optimizer,
    optimizer_tensors,
    trained_parameters,
)


def _model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3), nn.Linear(3, 2))


def _step(model: nn.Module, optimizer: torch.optim.Optimizer, seed: int) -> None:
    torch.manual_seed(seed)
    model(torch.randn(5, 4)).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def test_weight_decay_applies_only_to_matrices() -> None:
    model = _model()
    groups = make_optimizer(model, OptimizerSettings(weight_decay=0.5)).param_groups
    assert [group["weight_decay"] for group in groups] == [0.5, 0.0]
    assert {p.ndim for p in groups[0]["params"]} == {2}
    assert {p.ndim for p in groups[1]["params"]} == {1}
    assert sum(len(group["params"]) for group in groups) == len(trained_parameters(model))


def test_frozen_parameters_are_not_trained() -> None:
    model = _model()
    model[0].requires_grad_(False)
    assert sorted(trained_parameters(model)) == ["1.bias", "1.weight", "2.bias", "2.weight"]


def test_optimizer_step_matches_adamw_formula() -> None:
    weight = nn.Parameter(torch.tensor([[1.0, -2.0]]))
    model = nn.Module()
    model.weight = weight
    settings = OptimizerSettings(learning_rate=0.1, weight_decay=0.01)
    optimizer = make_optimizer(model, settings)
    optimizer.param_groups[0]["lr"] = settings.learning_rate
    weight.grad = torch.tensor([[0.5, -4.0]])
    optimizer.step()
    # after one step the moments, corrected for their start, are the gradient and its square
    expected = torch.tensor([[1.0, -2.0]]) * (1 - 0.1 * 0.01) - 0.1 * torch.tensor([[0.5, -4.0]]).sign()
    torch.testing.assert_close(weight.detach(), expected)


def test_restored_optimizer_continues_bit_identically() -> None:
    one, other = _model(), _model()
    optimizers = make_optimizer(one, OptimizerSettings()), make_optimizer(other, OptimizerSettings())
    assert dict(optimizer_tensors(one, optimizers[0])) == {}
    for seed in range(3):
        _step(one, optimizers[0], seed)
    other.load_state_dict(one.state_dict())
    load_optimizer(other, optimizers[1], dict(optimizer_tensors(one, optimizers[0])))
    for model, optimizer in zip((one, other), optimizers, strict=True):
        _step(model, optimizer, 9)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def model() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(3, 2)


def step(layer: nn.Linear, optimizer_step: OptimizerStep, number: int) -> float:
    optimizer_step.begin(number, 10)
    layer(torch.ones(1, 3)).sum().backward()
    return optimizer_step.apply()


def test_apply_returns_norm_and_drops_gradients() -> None:
    layer = model()
    optimizer_step = OptimizerStep(layer, OptimizerSettings(learning_rate=0.1, warmup_steps=2, weight_decay=0.0))
    before = layer.weight.detach().clone()
    assert optimizer_step.begin(0, 10) == pytest.approx(0.05)
    assert step(layer, optimizer_step, 0) == pytest.approx(8**0.5)  # eight gradients of one
    assert torch.allclose(layer.weight, before - 0.05)  # Adam's first step
    assert layer.weight.grad is None


def test_optimizer_step_resumes_bit_identically() -> None:
    first, second = model(), model()
    one = OptimizerStep(first, OptimizerSettings())
    step(first, one, 0)
    other = OptimizerStep(second, OptimizerSettings())
    other.load(one.weights(keep=True), dict(one.state()))
    step(first, one, 1)
    step(second, other, 1)
    assert torch.equal(first.weight, second.weight)
    assert one.weights(keep=False) == {}
    with pytest.raises(KeyError):
        load_weights(second, {"weight": torch.zeros(2, 3)})
