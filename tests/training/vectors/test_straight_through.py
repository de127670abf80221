import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lsr_prod.config.objective import PruningSettings
from lsr_prod.training.block_dot import block_dot
from lsr_prod.training.kept_terms import KeptTerms, Prunable, all_vectors, prune_through, temperature
from tests.training.gloo import run_workers
from tests.training.plain_loss import top_through
from tests.training.vectors.test_heaviest_terms import WEIGHTS, plain

V = 40


def rows(seed: int, count: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.relu(torch.randn(count, V, generator=generator, dtype=torch.float64)).requires_grad_()


def through(weights: Tensor, k: int, degrees: float, candidates: int) -> KeptTerms:
    return prune_through(Prunable(weights, [k, k * candidates]).heaviest(k * candidates), k, degrees)


def settings(**fields: float) -> PruningSettings:
    return PruningSettings.model_validate({"gradient": "straight_through"} | fields)


@given(WEIGHTS, st.integers(1, 14), st.integers(2, 4))
def test_forward_is_hard_pruning(weights: np.ndarray, k: int, candidates: int) -> None:
    k = min(k, weights.shape[1])
    kept = through(torch.tensor(weights), k, 0.3, candidates)
    assert np.array_equal(kept.dense().numpy(), plain(weights, k))


@given(WEIGHTS, st.integers(1, 5), st.integers(2, 4), st.floats(0.05, 5))
def test_backward_is_sigmoid_around_kth_weight(weights: np.ndarray, k: int, candidates: int, degrees: float) -> None:
    k = min(k, weights.shape[1] - 1)
    if not k:
        return
    pruning = settings(temperature_start=degrees, temperature_end=degrees, candidates=candidates)
    factors = torch.arange(1.0, weights.size + 1).view(weights.shape).double()
    gradients = []
    for plain_form in (False, True):
        own = torch.tensor(weights, dtype=torch.float64, requires_grad=True)
        pruned = top_through(pruning, own, k, 0, 2) if plain_form else through(own, k, degrees, candidates).dense()
        (pruned * factors).sum().backward()
        gradients.append(own.grad * (own > 0))
    torch.testing.assert_close(*gradients)


def test_gradient_of_example() -> None:
    weights = torch.tensor([[0.0, 3.0, 1.0, 2.0, 0.5], [0.0, 0.0, 4.0, 0.0, 0.0]], requires_grad=True)
    through(weights, 1, 0.5, 3).dense().sum().backward()
    # Around 3, the heaviest; 0.5 is no candidate; the second row is not pruned.
    assert weights.grad.tolist() == [
        [0.0, 0.5, pytest.approx(1 / (1 + math.exp(4))), pytest.approx(1 / (1 + math.exp(2))), 0.0],
        [0.0, 0.0, 1.0, 0.0, 0.0],
    ]


@pytest.mark.parametrize(("qk", "dk"), [(3, 5), (3, 0), (0, 5), (9, 10)])
def test_products_pass_gradient_to_candidates(qk: int, dk: int) -> None:
    outcomes = []
    for plain_form in (False, True):
        queries, documents = rows(0, 3), rows(1, 4)
        if plain_form:
            pruning = settings(temperature_start=0.4, temperature_end=0.4)
            scores = top_through(pruning, queries, qk, 0, 2) @ top_through(pruning, documents, dk, 0, 2).T
        else:
            ours = [through(side, k, 0.4, 4) if k else side for side, k in ((queries, qk), (documents, dk))]
            scores = block_dot(*ours)
        (scores * torch.arange(12.0).view(3, 4)).sum().backward()
        # What a rectified weight of 0 gets never reaches the model.
        outcomes.append((scores.detach(), queries.grad * (queries > 0), documents.grad * (documents > 0)))
    for ours, expected in zip(*outcomes, strict=True):
        torch.testing.assert_close(ours, expected)


def test_slices_keep_candidates() -> None:
    weights = rows(2, 4)
    through(weights, 2, 0.5, 4)[1:2].dense().sum().backward()
    reached = (weights.grad > 0).sum(dim=1)
    assert reached.tolist() == [0, 8, 0, 0]


def gather(rank: int) -> Tensor:
    """Worker 1 scores a query with the document of worker 0; the document's candidates get the gradient."""
    document = torch.tensor([[3.0, 2.0, 1.0, 0.0]])[rank:].requires_grad_()
    everyones = all_vectors(through(document, 1, 1.0, 3), [1, 0])
    queries = torch.tensor([[0.0, float(rank), 0.0, 1.0]])
    query = through(queries, 2, 1.0, 2)
    block_dot(query, everyones).sum().backward()
    return document.grad


def test_candidates_of_other_workers_receive_gradient() -> None:
    own, _ = run_workers(gather, 2)
    torch.testing.assert_close(own, torch.tensor([[0.0, 1 / (1 + math.exp(1)), 0.0, 0.0]]))


def test_temperature_changes_by_constant_factor_from_start_to_end() -> None:
    pruning = settings(temperature_start=0.8, temperature_end=0.1)
    values = [temperature(pruning, step, 4) for step in range(4)]
    assert values == pytest.approx([0.8, 0.4, 0.2, 0.1])
    assert temperature(pruning, 9, 4) == pytest.approx(0.1)
    assert temperature(pruning, 0, 1) == pytest.approx(0.8)
