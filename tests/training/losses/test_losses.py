import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lsr_prod.training.losses.ranking import info_nce, kl, margin_mse

SEEDS = st.integers(0, 10_000)


def draw(seed: int, n: int, m: int) -> torch.Tensor:
    return 3 * torch.randn(n, m, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@given(SEEDS, st.floats(0.05, 5), st.floats(0, 2))
def test_info_nce_is_cross_entropy_of_positive(seed: int, temperature: float, margin: float) -> None:
    scores, positive = draw(seed, 3, 5), torch.tensor([4, 0, 2])
    expected = 0.0
    for row, column in zip(scores.tolist(), positive.tolist(), strict=True):
        row[column] -= margin
        expected -= math.log(math.exp(row[column] / temperature) / sum(math.exp(s / temperature) for s in row))
    ours = info_nce(scores, positive, temperature=temperature, margin=margin)
    np.testing.assert_allclose(ours, expected, rtol=1e-9, atol=1e-12)  # of a loss near 0 the reference has few digits


def test_info_nce_of_positives_is_n_pair_loss() -> None:
    scores = draw(0, 4, 4)
    # Equation 2: the positive's exponential, and the sum over the others of the batch.
    s = scores.numpy()
    expected = [
        -np.log(np.exp(s[i, i]) / (np.exp(s[i, i]) + sum(np.exp(s[i, j]) for j in range(4) if j != i)))
        for i in range(4)
    ]
    np.testing.assert_allclose(info_nce(scores, torch.arange(4)), sum(expected))


@given(SEEDS, st.integers(1, 4))
def test_margin_mse_is_mean_over_negatives(seed: int, negatives: int) -> None:
    scores, teacher = draw(seed, 3, negatives + 1), draw(seed + 1, 3, negatives + 1)
    s, t = scores.numpy(), teacher.numpy()
    expected = sum(
        np.mean([((s[i, 0] - s[i, j]) - (t[i, 0] - t[i, j])) ** 2 for j in range(1, negatives + 1)]) for i in range(3)
    )
    np.testing.assert_allclose(margin_mse(scores, teacher), expected)


@given(SEEDS, st.floats(0.1, 5), st.floats(0.1, 5))
def test_kl_is_divergence_from_teacher_distribution(seed: int, temperature: float, of_teacher: float) -> None:
    scores, teacher = draw(seed, 3, 4), draw(seed + 1, 3, 4)

    def softmax(row: np.ndarray) -> np.ndarray:
        exponentials = np.exp(row)
        return exponentials / exponentials.sum()

    expected = 0.0
    for s, t in zip(scores.numpy(), teacher.numpy(), strict=True):
        p, q = softmax(t / of_teacher), softmax(s / temperature)
        expected += float(np.sum(p * (np.log(p) - np.log(q))))
    ours = kl(scores, teacher, temperature=temperature, teacher_temperature=of_teacher)
    np.testing.assert_allclose(ours, expected, rtol=1e-7, atol=1e-9)


def test_kl_of_teacher_from_itself_is_zero_without_overflow() -> None:
    scores = torch.tensor([[1e4, -1e4, 0.0]])
    assert kl(scores, scores).item() == 0
    assert math.isfinite(info_nce(scores, torch.tensor([1]), temperature=0.05).item())


@pytest.mark.parametrize("loss", ["info_nce", "margin_mse", "kl"])
def test_gradcheck(loss: str) -> None:
    scores, teacher = draw(7, 3, 4).requires_grad_(), draw(8, 3, 4)
    functions = {
        "info_nce": lambda s: info_nce(s, torch.tensor([1, 0, 3]), temperature=0.7, margin=0.3),
        "margin_mse": lambda s: margin_mse(s, teacher),
        "kl": lambda s: kl(s, teacher, temperature=0.5, teacher_temperature=2.0),
    }
    assert torch.autograd.gradcheck(functions[loss], (scores,))
