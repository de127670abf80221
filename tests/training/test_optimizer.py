import torch
from torch import nn

from lsr_prod.config.train import OptimizerSettings
from lsr_prod.training.optimizer import load_optimizer, make_optimizer, optimizer_tensors, trained_parameters


def _model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3), nn.Linear(3, 2))


def _step(model: nn.Module, optimizer: torch.optim.Optimizer, seed: int) -> None:
    torch.manual_seed(seed)
    model(torch.randn(5, 4)).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def test_matrices_decay_and_nothing_else_does() -> None:
    model = _model()
    groups = make_optimizer(model, OptimizerSettings(weight_decay=0.5)).param_groups
    assert [group["weight_decay"] for group in groups] == [0.5, 0.0]
    assert {p.ndim for p in groups[0]["params"]} == {2}
    assert {p.ndim for p in groups[1]["params"]} == {1}
    assert sum(len(group["params"]) for group in groups) == len(trained_parameters(model))


def test_what_is_frozen_is_left_out() -> None:
    model = _model()
    model[0].requires_grad_(False)
    assert sorted(trained_parameters(model)) == ["1.bias", "1.weight", "2.bias", "2.weight"]


def test_a_step_is_adamw_s_formula() -> None:
    weight = nn.Parameter(torch.tensor([[1.0, -2.0]]))
    model = nn.Module()
    model.weight = weight
    settings = OptimizerSettings(learning_rate=0.1, weight_decay=0.01)
    optimizer = make_optimizer(model, settings)
    weight.grad = torch.tensor([[0.5, -4.0]])
    optimizer.step()
    # after one step the moments, corrected for their start, are the gradient and its square
    expected = torch.tensor([[1.0, -2.0]]) * (1 - 0.1 * 0.01) - 0.1 * torch.tensor([[0.5, -4.0]]).sign()
    torch.testing.assert_close(weight.detach(), expected)


def test_an_optimizer_goes_on_bit_for_bit() -> None:
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
