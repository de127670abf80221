import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lsr_prod.training.observers.activity import DeadTerms, measure_activity
from tests.training.gloo import run_workers

V = 7


def _vectors(rows: int, seed: int, share: float = 0.4) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(rows, V, generator=generator) * (torch.rand(rows, V, generator=generator) < share)


def by_hand(queries: Tensor, documents: Tensor) -> dict[str, float]:
    q, d = queries.tolist(), documents.tolist()

    def l0(rows: list[list[float]]) -> float:
        return sum(sum(weight > 0 for weight in row) for row in rows) / len(rows)

    def share(rows: list[list[float]], term: int) -> float:
        return sum(row[term] > 0 for row in rows) / len(rows)

    def cosine(rows: list[list[float]]) -> float:
        filled = [row for row in rows if any(row)]
        pairs = [
            sum(a * b for a, b in zip(one, other, strict=True)) / (math.hypot(*one) * math.hypot(*other))
            for one, other in itertools.combinations(filled, 2)
        ]
        return sum(pairs) / len(pairs) if pairs else 0.0

    postings = [sum(row[term] > 0 for row in d) for term in range(V)]
    touched = sum(postings[term] for row in q for term in range(V) if row[term] > 0)
    return {
        "l0_query": l0(q),
        "l0_document": l0(d),
        "activation_rate_query": l0(q) / V,
        "activation_rate_document": sum(share(d, term) for term in range(V)) / V,
        "empty_query": sum(not any(row) for row in q) / len(q),
        "empty_document": sum(not any(row) for row in d) / len(d),
        "flops": touched / (len(q) * len(d)),  # papers/esplade-pretraining, eq. 1
        "cosine_query": cosine(q),
        "cosine_document": cosine(d),
    }


@settings(max_examples=40)
@given(st.integers(1, 6), st.integers(1, 9), st.integers(0, 1000), st.sampled_from([0.0, 0.2, 0.9]))
def test_activity_matches_counts_by_hand(n: int, m: int, seed: int, share: float) -> None:
    queries, documents = _vectors(n, seed, share), _vectors(m, seed + 1, share)
    assert measure_activity(queries, documents) == pytest.approx(by_hand(queries, documents), abs=1e-6)


def test_activity_accepts_worker_without_texts() -> None:
    figures = measure_activity(_vectors(0, 0), _vectors(3, 0))
    assert (figures["l0_query"], figures["empty_query"], figures["flops"]) == (0, 0, 0)
    assert figures["l0_document"] > 0
    dead = DeadTerms(V, window=1)
    dead.observe(_vectors(0, 0), 0)
    assert dead.count(0) == V


def test_activity_has_no_gradient() -> None:
    queries = _vectors(3, 0).requires_grad_()
    measure_activity(queries, queries)
    assert queries.grad is None


def _share(rank: int, cuts: list[list[int]]) -> dict[str, Any]:
    rows, dead = _vectors(9, 5), DeadTerms(V, window=2)
    queries, documents = rows[cuts[rank][0] : cuts[rank][1]], rows[cuts[rank][2] : cuts[rank][3]]
    dead.observe(documents, 3)
    return {**measure_activity(queries, documents), "dead": dead.count(4), "state": dead.state()["last_active"]}


def test_activity_covers_global_batch_of_unequal_shares() -> None:
    cuts = [[0, 3, 0, 1], [3, 4, 1, 9]]
    alone = _share(0, [[0, 4, 0, 9]])
    for result in run_workers(_share, 2, cuts):
        assert torch.equal(result.pop("state"), alone["state"])
        assert result == pytest.approx({name: value for name, value in alone.items() if name != "state"})


@settings(max_examples=40)
@given(st.lists(st.sets(st.integers(0, V - 1)), min_size=1, max_size=9), st.integers(1, 4))
def test_dead_terms_are_inactive_in_whole_window(active: list[set[int]], window: int) -> None:
    dead = DeadTerms(V, window=window)
    for step, terms in enumerate(active):
        vectors = torch.zeros(2, V)
        vectors[step % 2, sorted(terms)] = 0.5
        dead.observe(vectors, step)
        recent = set().union(*active[max(0, step - window + 1) : step + 1])
        assert dead.count(step) == (V - len(recent) if step + 1 >= window else None)


def test_dead_terms_resume_from_checkpoint() -> None:
    whole, first = DeadTerms(V, window=3), DeadTerms(V, window=3)
    for step in range(4):
        whole.observe(_vectors(1, step), step)
        first.observe(_vectors(1, step), step)
    second = DeadTerms(V, window=3)
    second.load_state(first.state())
    first.observe(torch.ones(1, V), 4)  # the checkpoint is no view of it
    for step in range(4, 8):
        whole.observe(_vectors(1, step, 0.1), step)
        second.observe(_vectors(1, step, 0.1), step)
        assert second.count(step) == whole.count(step)
    assert torch.equal(second.state()["last_active"], whole.state()["last_active"])
