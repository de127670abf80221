import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from lsr_prod.training.vocabulary.initialization import sparsemax, sparsemax_support


def plain_sparsemax(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Algorithm 1 of Martins and Astudillo, one row."""
    z = np.sort(scores)[::-1]
    k = max(k for k in range(1, len(z) + 1) if 1 + k * z[k - 1] > z[:k].sum())
    return np.maximum(scores - (z[:k].sum() - 1) / k, 0)


def test_sparsemax_equals_value_by_hand():
    # The threshold of 0.6 and 0.3 is (0.6 + 0.3 - 1) / 2 = -0.05; -0.2 is below it.
    torch.testing.assert_close(sparsemax(torch.tensor([[0.3, -0.2, 0.6]])), torch.tensor([[0.35, 0.0, 0.65]]))
    torch.testing.assert_close(sparsemax(torch.tensor([[2.0, 0.5]])), torch.tensor([[1.0, 0.0]]))
    torch.testing.assert_close(sparsemax(torch.zeros(1, 4)), torch.full((1, 4), 0.25))


@given(st.integers(0, 10_000), st.integers(1, 400), st.sampled_from([1e-4, 1e-2, 1.0, 10.0]))
def test_sparsemax_equals_full_sort(seed: int, n: int, scale: float):
    scores = np.random.default_rng(seed).normal(size=(5, n)) * scale
    found = sparsemax(torch.from_numpy(scores)).numpy()
    np.testing.assert_allclose(found, [plain_sparsemax(row) for row in scores], atol=1e-12)
    np.testing.assert_allclose(found.sum(axis=1), 1)


def test_support_larger_than_first_sort_is_exact():
    scores = torch.linspace(0.5, 0.501, 1000, dtype=torch.float64)[None]
    columns, weights = sparsemax_support(scores)
    assert columns.shape[1] == 1000
    np.testing.assert_allclose(sparsemax(scores)[0], plain_sparsemax(scores[0].numpy()), atol=1e-15)
    assert (weights > 0).sum() == 1000


def test_equal_scores_at_edge_of_first_sort():
    scores = torch.zeros(1, 300)
    assert sparsemax(scores).numpy() == pytest.approx(np.full((1, 300), 1 / 300))
