import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lsr_prod.config.objective import OverlapSettings
from lsr_prod.training.kept_terms import KeptTerms, Vectors, cut
from lsr_prod.training.losses import overlap as module
from lsr_prod.training.losses.overlap import OverlapTerm

V = 12


def vectors(seed: int, rows: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.relu(torch.randn(rows, V, generator=generator, dtype=torch.float64))


def dense(kept: Vectors) -> np.ndarray:
    return (kept.dense() if isinstance(kept, KeptTerms) else kept).detach().numpy()


def settings_of(term: str, threshold: float, **cuts: int) -> OverlapSettings:
    thresholds = {"overlap_threshold": threshold} if term == "co_occurrence" else {}
    return OverlapSettings.model_validate({"term": term, **thresholds, **cuts})


def plain(settings: OverlapSettings, queries: np.ndarray, positives: np.ndarray) -> float:
    total = 0.0
    for query, positive in zip(queries, positives, strict=True):
        a, b = query / (query + settings.softness), positive / (positive + settings.softness)
        size = int((query > 0).sum())
        if not size:
            continue
        if settings.term == "jaccard":
            total += 1 - (a * b).sum() / (a.sum() + b.sum() - (a * b).sum())
        else:
            required = max(1, math.ceil(Fraction(str(settings.overlap_threshold)) * size))
            total += max(0.0, required / size - (a * b).sum() / a.sum())
    return total


@given(
    st.integers(0, 10_000),
    st.sampled_from(["co_occurrence", "jaccard"]),
    st.sampled_from([0.28, 0.4, 0.6, 1.0]),
    st.sampled_from([(0, 0), (5, 7), (0, 7), (5, 0)]),
)
def test_overlap_terms_match_formulas(seed: int, term: str, threshold: float, cuts: tuple[int, int]) -> None:
    qk, dk = cuts
    settings = settings_of(term, threshold, qk=qk, dk=dk)
    queries, positives = cut(vectors(seed, 4), qk), cut(vectors(seed + 1, 4), dk)
    expected = plain(settings, dense(queries), dense(positives))
    np.testing.assert_allclose(OverlapTerm(settings, V)(queries, positives), expected, atol=1e-12)


@pytest.mark.parametrize("term", ["co_occurrence", "jaccard"])
def test_overlap_of_empty_query_is_zero_and_of_empty_positive_maximal(term: str) -> None:
    overlap = OverlapTerm(settings_of(term, 0.5), V)
    nothing, something = torch.zeros(1, V, requires_grad=True), torch.ones(1, V)
    value = overlap(nothing, something)
    value.backward()
    assert value.item() == 0
    assert torch.isfinite(nothing.grad).all()
    assert overlap(something, torch.zeros(1, V)).item() == (1 if term == "jaccard" else 0.5)


def test_overlap_is_zero_with_enough_shared_terms() -> None:
    overlap = OverlapTerm(OverlapSettings(overlap_threshold=0.6), V)
    rows = torch.full((2, V), 3.0, requires_grad=True)
    value = overlap(rows, rows)
    value.backward()
    assert value.item() == 0
    assert not rows.grad.any()


def test_overlap_gradient_increases_shared_terms() -> None:
    queries = torch.tensor([[1.0, 1.0, 1.0, 0.0]], requires_grad=True)
    positives = torch.tensor([[0.1, 0.0, 0.1, 1.0]], requires_grad=True)
    OverlapTerm(OverlapSettings(overlap_threshold=1.0), 4)(queries, positives).backward()
    assert (positives.grad[0, [0, 2]] < 0).all()  # a step down the gradient makes them heavier
    assert positives.grad[0, 3] == 0
    assert queries.grad[0, 1] > 0  # the term that the positive lacks gets lighter


@pytest.mark.parametrize("term", ["co_occurrence", "jaccard"])
@pytest.mark.parametrize(("qk", "dk"), [(0, 0), (4, 5)])
@pytest.mark.parametrize("rows", [2, 64])
def test_overlap_gradcheck_in_slices(term: str, qk: int, dk: int, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ROWS", rows)
    overlap = OverlapTerm(settings_of(term, 0.9, qk=qk, dk=dk), V)
    queries, positives = vectors(1, 5), vectors(2, 5)
    active, active_positives = queries > 0, positives > 0

    def value(a: Tensor, b: Tensor) -> Tensor:
        return overlap(cut(a * active, qk), cut(b * active_positives, dk))

    assert torch.autograd.gradcheck(value, (queries.requires_grad_(), positives.requires_grad_()))
