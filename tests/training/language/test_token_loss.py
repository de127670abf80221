"""Both cross entropies against their formulas, written out plainly."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lsr_prod.training.language import objective as token_loss
from lsr_prod.training.language.objective import token_losses


def plain(states: np.ndarray, weight: np.ndarray, bias: np.ndarray, labels: np.ndarray) -> tuple[float, float, int]:
    """Sums over tokens of CE(z, y), of CE(log(1 + relu(z)), y), and the labels with the largest logit."""
    first, second, hits = 0.0, 0.0, 0
    for state, label in zip(states, labels, strict=True):
        z = weight @ state + bias
        a = np.log(1 + np.maximum(z, 0))
        first += -np.log(np.exp(z)[label] / np.exp(z).sum())
        second += -np.log(np.exp(a)[label] / np.exp(a).sum())
        hits += int(z[label] == z.max())
    return first, second, hits


def draw(seed: int, n: int, v: int, d: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    states, weight, bias = (
        torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((n, d), (v, d), (v,))
    )
    return states, weight, bias, torch.randint(v, (n,), generator=generator)


def small_tiles(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(token_loss, "_CPU_TILE", size)


@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(2, 7), st.integers(1, 4), st.sampled_from([4, 16, 1000]))
def test_token_losses_match_formulas(seed: int, n: int, v: int, d: int, tile: int) -> None:
    states, weight, bias, labels = draw(seed, n, v, d)
    with pytest.MonkeyPatch.context() as monkeypatch:
        small_tiles(monkeypatch, tile)
        total, parts = token_losses(states, weight, bias, labels, relu_weight=0.7)
    first, second, hits = plain(*(one.numpy() for one in (states, weight, bias, labels)))
    assert parts.tolist() == pytest.approx([first, second, hits])
    assert float(total) == pytest.approx(first + 0.7 * second)


def test_token_losses_match_example_by_hand() -> None:
    # Logits (1, -2, 3) and label 0: exp of activations (2, 1, 4), whose sum is 3 + (1 + 3) = 7.
    weight = torch.tensor([[1.0], [-2.0], [3.0]])
    _, parts = token_losses(torch.ones(1, 1), weight, None, torch.tensor([0]), relu_weight=1.0)
    wanted = np.log(np.e + np.exp(-2) + np.exp(3)) - 1
    assert parts.tolist() == pytest.approx([wanted, np.log(7 / 2), 0])


@pytest.mark.parametrize("relu_weight", [0.0, 1.0, 0.3])
def test_token_losses_gradient_matches_plain_form(monkeypatch: pytest.MonkeyPatch, relu_weight: float) -> None:
    small_tiles(monkeypatch, 22)  # two tokens at a time
    inputs = [one.requires_grad_(one.is_floating_point()) for one in draw(3, 7, 11, 5)]
    states, weight, bias, labels = inputs

    def whole(*_: Any) -> torch.Tensor:
        z = states @ weight.T + bias
        entropy = torch.nn.functional.cross_entropy
        activated = entropy(torch.log(1 + torch.relu(z)), labels, reduction="sum")
        return entropy(z, labels, reduction="sum") + relu_weight * activated

    wanted = torch.autograd.grad(whole() * 2.5, inputs[:3])
    found = torch.autograd.grad(
        token_losses(states, weight, bias, labels, relu_weight=relu_weight)[0] * 2.5, inputs[:3]
    )
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)


def test_token_losses_accept_frozen_inputs_and_no_tokens() -> None:
    states, weight, bias, labels = draw(4, 6, 5, 3)
    total, _ = token_losses(states, weight.requires_grad_(), bias, labels)
    total.backward()
    assert weight.grad is not None
    assert states.grad is None
    nothing = states[:0].requires_grad_()
    total, parts = token_losses(nothing, weight, bias, labels[:0], relu_weight=1.0)
    total.backward()
    assert (total.item(), parts.tolist()) == (0.0, [0.0, 0.0, 0.0])
    assert nothing.grad is not None
    with torch.no_grad():
        assert not token_losses(states, weight, bias, labels)[0].requires_grad


def test_sums_and_gradients_are_float32_under_autocast() -> None:
    states, weight, bias, labels = (one.float() if one.is_floating_point() else one for one in draw(5, 40, 30, 8))
    exact, _ = token_losses(states, weight, bias, labels, relu_weight=1.0)
    weight.requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        total, parts = token_losses(states, weight, bias, labels, relu_weight=1.0)
    total.backward()
    assert total.dtype == parts.dtype == torch.float32
    assert weight.grad is not None
    assert weight.grad.dtype == torch.float32
    assert total.item() == pytest.approx(exact.item(), rel=0.02)


@pytest.mark.long
def test_token_losses_never_hold_all_logits() -> None:
    # 1,024 tokens of 100,000 terms would be 400 MB of logits.
    states, weight, labels = torch.randn(1024, 8), torch.randn(100_000, 8), torch.randint(100_000, (1024,))
    states.requires_grad_()
    weight.requires_grad_()
    with torch.profiler.profile(profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        total, _ = token_losses(states, weight, None, labels, relu_weight=1.0)
        total.backward()
    largest = max(event.cpu_memory_usage for event in profile.events())
    assert largest < 100e6, "bytes of one tensor"
    assert weight.grad is not None
