from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lsr_prod.training.kept_terms import KeptTerms, Vectors, cut
from lsr_prod.training.regularizers import cased, flops, joint_flops, l1, off_diagonal_joint_flops

V = 9
SEEDS = st.integers(0, 10_000)
CUTS = st.sampled_from([0, 4])  # whole vectors, and vectors of four terms
MASKS = st.one_of(st.none(), st.integers(0, 6))


def vectors(seed: int, rows: int, k: int = 0) -> tuple[Vectors, np.ndarray]:
    weights = torch.relu(torch.randn(rows, V, generator=torch.Generator().manual_seed(seed), dtype=torch.float64))
    kept = cut(weights, k)
    return kept, (kept.dense() if isinstance(kept, KeptTerms) else kept).numpy()


def means(rows: np.ndarray, l0_mask: int | None) -> list[float]:
    entering = [row for row in rows if l0_mask is None or sum(weight > 0 for weight in row) > l0_mask]
    return [sum(row[t] for row in entering) / len(rows) for t in range(V)]


@given(SEEDS, CUTS, MASKS, st.booleans())
def test_flops_is_sum_of_squared_means(seed: int, k: int, l0_mask: int | None, weighted: bool) -> None:
    rows, plain = vectors(seed, 5, k)
    factors = np.linspace(0, 1, V) if weighted else np.ones(V)
    expected = sum((factor * mean) ** 2 for factor, mean in zip(factors, means(plain, l0_mask), strict=True))
    ours = flops(rows, 5, l0_mask=l0_mask, term_weights=torch.tensor(factors) if weighted else None)
    np.testing.assert_allclose(ours, expected)


@given(SEEDS, CUTS, CUTS)
def test_joint_flops_is_product_of_means(seed: int, qk: int, dk: int) -> None:
    (queries, plain_queries), (documents, plain_documents) = vectors(seed, 3, qk), vectors(seed + 1, 6, dk)
    expected = sum(q * d for q, d in zip(means(plain_queries, None), means(plain_documents, None), strict=True))
    ours = joint_flops(queries, documents, query_texts=3, document_texts=6)
    np.testing.assert_allclose(ours, expected)


@given(SEEDS, CUTS, CUTS, st.integers(1, 3))
def test_off_diagonal_joint_flops_is_mean_over_pairs_without_own_positives(seed: int, qk: int, dk: int, c: int) -> None:
    (queries, plain_queries), (documents, plain_documents) = vectors(seed, 3, qk), vectors(seed + 1, 3 * c, dk)
    pairs = [float(q @ d) for i, q in enumerate(plain_queries) for j, d in enumerate(plain_documents) if j != i * c]
    ours = off_diagonal_joint_flops(queries, documents, query_texts=3, document_texts=3 * c)
    np.testing.assert_allclose(ours, sum(pairs) / len(pairs), atol=1e-12)


def test_joint_flops_is_off_diagonal_mean_with_a_share_of_own_positives() -> None:
    """With M documents: (1 - 1 / M) of the mean of other pairs, and 1 / M of the mean of own pairs."""
    (queries, _), (documents, _) = vectors(5, 4), vectors(6, 8)
    sizes = {"query_texts": 4, "document_texts": 8}
    own = (queries * documents[::2]).sum(dim=1).mean()
    off = off_diagonal_joint_flops(queries, documents, **sizes)
    torch.testing.assert_close(joint_flops(queries, documents, **sizes), off * 7 / 8 + own / 8)


def test_off_diagonal_joint_flops_of_parts_has_expectation_of_batch() -> None:
    """Over all ways to split a batch, unlike the mean over all pairs."""
    (queries, _), (documents, _) = vectors(7, 4), vectors(8, 4)
    off, plain = [], []
    for order in map(list, permutations(range(4))):
        for part in (order[:2], order[2:]):
            of_part = (queries[part], documents[part])
            off.append(off_diagonal_joint_flops(*of_part, query_texts=2, document_texts=2))
            plain.append(joint_flops(*of_part, query_texts=2, document_texts=2))
    whole = {"query_texts": 4, "document_texts": 4}
    torch.testing.assert_close(torch.stack(off).mean(), off_diagonal_joint_flops(queries, documents, **whole))
    assert not torch.isclose(torch.stack(plain).mean(), joint_flops(queries, documents, **whole))


def test_off_diagonal_joint_flops_of_single_pair_is_zero() -> None:
    (queries, _), (documents, _) = vectors(9, 1, 4), vectors(9, 1)
    assert off_diagonal_joint_flops(queries, documents, query_texts=1, document_texts=1) == 0


@given(SEEDS, CUTS, MASKS)
def test_l1_is_mean_of_sums(seed: int, k: int, l0_mask: int | None) -> None:
    rows, plain = vectors(seed, 5, k)
    np.testing.assert_allclose(l1(rows, 5, l0_mask=l0_mask), sum(means(plain, l0_mask)))


@given(SEEDS, CUTS)
def test_cased_is_mean_over_texts(seed: int, k: int) -> None:
    """As in the authors' code: ``torch.sum(cased_activations ** 2, dim=-1).mean()``."""
    rows, plain = vectors(seed, 5, k)
    is_cased = [t % 3 == 0 for t in range(V)]
    expected = sum(row[t] ** 2 for row in plain for t in range(V) if is_cased[t]) / 5
    np.testing.assert_allclose(cased(rows, 5, torch.tensor(is_cased)), expected)


@pytest.mark.parametrize("k", [0, 4])
def test_gradcheck(k: int) -> None:
    whole, _ = vectors(3, 4)
    assert isinstance(whole, Tensor)
    active = whole > 0
    factors, is_cased = torch.rand(V, dtype=torch.float64), torch.arange(V) % 2 == 0

    def total(weights: Tensor) -> Tensor:
        rows = cut(weights * active, k)  # zeros stay zeros
        return (
            flops(rows, 4, l0_mask=3)
            + flops(rows, 4, term_weights=factors)
            + joint_flops(rows, rows, query_texts=4, document_texts=4)
            + off_diagonal_joint_flops(rows, rows, query_texts=4, document_texts=4)
            + l1(rows, 4, l0_mask=2)
            + cased(rows, 4, is_cased)
        )

    assert torch.autograd.gradcheck(total, (whole.requires_grad_(),))


@given(SEEDS, st.integers(1, 4))
def test_flops_of_parts_exceed_flops_of_batch(seed: int, parts: int) -> None:
    """What accumulation does: a mean of squared means is at least the squared mean of the means."""
    rows, _ = vectors(seed, 4 * parts)
    assert isinstance(rows, Tensor)
    of_parts = torch.stack([flops(part, 4) for part in rows.split(4)]).mean()
    assert of_parts >= flops(rows, 4 * parts) - 1e-12
    linear = torch.stack([l1(part, 4) for part in rows.split(4)]).mean()
    torch.testing.assert_close(linear, l1(rows, 4 * parts))
    is_cased = torch.arange(V) % 2 == 0
    mean = torch.stack([cased(part, 4, is_cased) for part in rows.split(4)]).mean()
    torch.testing.assert_close(mean, cased(rows, 4 * parts, is_cased))
