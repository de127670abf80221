import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lsr_prod.training.kept_terms import KeptTerms, Prunable, all_vectors, cut, keep_terms
from tests.training.gloo import run_workers
from tests.training.vectors.test_heaviest_terms import WEIGHTS, keep_top


@given(WEIGHTS, st.integers(1, 14), st.integers(1, 14))
def test_kept_terms_match_dense_mask_and_can_be_pruned_again(weights: np.ndarray, k: int, again: int) -> None:
    rows = torch.tensor(weights)
    kept = keep_terms(rows, k)
    assert torch.equal(kept.dense(), keep_top(rows, k))
    assert torch.equal(keep_terms(kept, again).dense(), keep_top(rows, min(k, again)))
    assert torch.equal(kept[::2].dense(), keep_top(rows, k)[::2])
    assert len(kept) == len(rows)


@given(WEIGHTS, st.lists(st.one_of(st.none(), st.integers(0, 14)), min_size=1, max_size=4))
def test_prunable_searches_once_for_all_sizes(weights: np.ndarray, sizes: list[int | None]) -> None:
    rows = torch.tensor(weights)
    prunable = Prunable(rows, sizes)
    for k in sizes:
        kept = prunable.keep(k)
        dense = kept.dense() if isinstance(kept, KeptTerms) else kept
        assert torch.equal(dense, keep_top(rows, k))


def test_kept_terms_have_gradient_of_mask() -> None:
    rows = torch.tensor([[0.0, 3, 1, 2], [0, 0, 5, 0]], requires_grad=True)
    factors = torch.tensor([[1.0, 2, 3, 4], [5, 6, 7, 8]])
    (keep_terms(rows, 2).top(2).dense() * factors).sum().backward()
    assert rows.grad.tolist() == [[0, 2, 0, 4], [0, 0, 7, 0]]  # nothing for the zero that fills the second row


@pytest.mark.parametrize("k", [0, None, 3])
def test_cut_returns_vectors_unchanged_if_nothing_is_pruned(k: int | None) -> None:
    rows = torch.rand(2, 3)
    assert cut(rows, k) is rows


def gather(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    rows = (torch.arange(24.0).view(4, 6)[:1] if rank == 0 else torch.arange(24.0).view(4, 6)[1:]).requires_grad_()
    gathered = all_vectors(keep_terms(rows, 2), [1, 3])
    assert isinstance(gathered, KeptTerms)
    (gathered.dense() * (rank + 1)).sum().backward()
    return gathered.dense().detach(), rows.grad


def test_all_vectors_gathers_kept_terms() -> None:
    whole = keep_top(torch.arange(24.0).view(4, 6), 2)
    (first, first_gradient), (second, second_gradient) = run_workers(gather, 2)
    assert torch.equal(first, whole)
    assert torch.equal(second, whole)
    # The sum of what both workers do with a row: 1 + 2.
    assert torch.equal(torch.cat([first_gradient, second_gradient]), 3.0 * (whole > 0))
