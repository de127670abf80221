import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lsr_prod.model import pooled_head
from lsr_prod.training.kept_terms import heaviest_terms

# Few different weights, so that ties are the rule and not the exception.
WEIGHTS = hnp.arrays(
    np.float32, st.tuples(st.integers(0, 5), st.integers(1, 12)), elements=st.sampled_from([0, 1, 2, 3])
)


def keep_top(weights: torch.Tensor, k: int | None) -> torch.Tensor:
    """Set all but the ``k`` heaviest terms of every row to 0."""
    if not k or k >= weights.shape[1]:
        return weights
    terms, values = heaviest_terms(weights.detach(), k)
    kept = torch.zeros_like(weights, dtype=torch.bool).scatter_(1, terms, values > 0)
    return torch.where(kept, weights, 0.0)


def plain(weights: np.ndarray, k: int) -> np.ndarray:
    kept = np.zeros_like(weights)
    for row, out in zip(weights, kept, strict=True):
        for term in sorted(range(len(row)), key=lambda term: (-row[term], term))[:k]:
            out[term] = row[term]
    return kept


@given(WEIGHTS, st.data())
def test_terms_without_reads_of_the_host_are_the_same(weights: np.ndarray, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, weights.shape[1]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pooled_head, "are_free", lambda _: False)
        terms, kept = heaviest_terms(torch.tensor(weights), k)
    assert (np.diff(terms.numpy(), axis=1) > 0).all()
    dense = np.zeros_like(weights)
    np.put_along_axis(dense, terms.numpy(), kept.numpy(), axis=1)
    assert np.array_equal(dense, plain(weights, k))


@given(WEIGHTS, st.integers(1, 14))
def test_keep_top_breaks_ties_by_lower_id(weights: np.ndarray, k: int) -> None:
    assert np.array_equal(keep_top(torch.tensor(weights), k).numpy(), plain(weights, k))


@given(WEIGHTS, st.data())
def test_heaviest_terms_have_increasing_ids(weights: np.ndarray, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, weights.shape[1]))
    terms, kept = heaviest_terms(torch.tensor(weights), k)
    assert (np.diff(terms.numpy(), axis=1) > 0).all()
    dense = np.zeros_like(weights)
    np.put_along_axis(dense, terms.numpy(), kept.numpy(), axis=1)
    assert np.array_equal(dense, plain(weights, k))


def test_heaviest_terms_with_more_tied_rows_than_one_slice() -> None:
    weights = torch.ones(300, 7)
    assert torch.equal(keep_top(weights, 3), torch.tensor([1.0, 1, 1, 0, 0, 0, 0]).expand(300, 7))


@pytest.mark.parametrize("k", [0, None, 4, 9])
def test_keep_top_keeps_all_terms_for_zero_or_large_k(k: int | None) -> None:
    weights = torch.rand(2, 4)
    assert keep_top(weights, k) is weights


def test_keep_top_passes_gradient_of_kept_terms_only() -> None:
    weights = torch.tensor([[0.0, 3, 1, 2], [5, 5, 5, 0]], requires_grad=True)
    (keep_top(weights, 2) * torch.tensor([[1.0, 2, 3, 4], [5, 6, 7, 8]])).sum().backward()
    assert weights.grad.tolist() == [[0, 2, 0, 4], [5, 6, 0, 0]]
