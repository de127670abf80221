import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lsr_prod.training.kept_terms import keep_terms
from lsr_prod.training.regularizers import DocumentFrequency, frequency_weights
from tests.training.gloo import run_workers

V, EVERY, STEPS = 6, 3, 8
CPU = torch.device("cpu")


def frequency() -> DocumentFrequency:
    return DocumentFrequency(V, alpha=0.3, beta=4.0, every=EVERY)


def documents_of(step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(step)
    return torch.relu(torch.randn(10, V, generator=generator) - torch.arange(V) / 2)


def plain_weight(x: float, alpha: float, beta: float) -> float:
    """The formula, where it can be written down; its limits at the ends."""
    if x == 0:
        return 0.0
    return 1 / (1 + (x ** math.log(2, alpha) - 1) ** beta)


@given(st.floats(1e-6, 1), st.floats(0.05, 0.9), st.floats(0.5, 12))
def test_frequency_weights_match_formula(x: float, alpha: float, beta: float) -> None:
    ours = frequency_weights(torch.tensor([x], dtype=torch.float64), alpha=alpha, beta=beta).item()
    try:
        expected = plain_weight(x, alpha, beta)
    except OverflowError:
        expected = 0.0
    assert math.isclose(ours, expected, rel_tol=1e-6, abs_tol=1e-12)


@given(st.floats(0.01, 0.99), st.floats(0.1, 30))
def test_frequency_weights_at_zero_alpha_and_one(alpha: float, beta: float) -> None:
    weights = frequency_weights(torch.tensor([0.0, alpha, 1.0], dtype=torch.float64), alpha=alpha, beta=beta)
    np.testing.assert_allclose(weights, [0, 0.5, 1], atol=1e-9)


def test_weights_follow_from_previous_window() -> None:
    counted = frequency()
    assert counted.weights(CPU).tolist() == [0.0] * V  # nothing is known yet
    for step in range(STEPS):
        counted.observe(documents_of(step), step)
        window = step // EVERY
        seen = range(EVERY * (window - 1), EVERY * window) if window else range(step + 1)
        documents = torch.cat([documents_of(earlier) for earlier in seen]).numpy()
        shares = [(documents[:, t] > 0).mean() for t in range(V)]
        expected = [plain_weight(share, 0.3, 4.0) for share in shares]
        np.testing.assert_allclose(counted.weights(CPU), expected, rtol=1e-6)


def test_observe_accepts_step_in_parts() -> None:
    whole, parts = frequency(), frequency()
    for step in range(STEPS):
        whole.observe(documents_of(step), step)
        for part in documents_of(step).split(4):
            parts.observe(part, step)
        assert torch.equal(whole.weights(CPU), parts.weights(CPU))


def test_kept_terms_count_like_dense_rows() -> None:
    dense, kept = frequency(), frequency()
    top = keep_terms(documents_of(0), 3)
    dense.observe(top.dense(), 0)
    kept.observe(top, 0)
    assert torch.equal(dense.weights(CPU), kept.weights(CPU))


@pytest.mark.parametrize("stop", [1, 3, 5])
def test_restored_counts_continue_bit_identically(stop: int) -> None:
    straight, first, second = frequency(), frequency(), frequency()
    for step in range(STEPS):
        straight.observe(documents_of(step), step)
        if step == stop:
            second.load_state(first.state())
        (first if step < stop else second).observe(documents_of(step), step)
    assert torch.equal(straight.weights(CPU), second.weights(CPU))
    assert all(torch.equal(straight.state()[key], second.state()[key]) for key in straight.state())


def count(rank: int) -> dict[str, torch.Tensor]:
    counted = frequency()
    for step in range(STEPS):
        counted.observe(documents_of(step).split([7, 3])[rank], step)
    return counted.state() | {"weights": counted.weights(CPU)}


def test_counts_are_global_and_equal_on_all_workers() -> None:
    alone = frequency()
    for step in range(STEPS):
        alone.observe(documents_of(step), step)
    expected = alone.state() | {"weights": alone.weights(CPU)}
    for state in run_workers(count, 2):
        assert all(torch.equal(state[key], expected[key]) for key in expected)
