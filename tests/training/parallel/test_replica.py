"""Replicas and shards give the gradient of one worker, at once and through the gradient cache."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lsr_prod.config.objective import LossSettings, ObjectiveSettings, RegularizerSettings, SparsitySettings
from lsr_prod.model import SparseEncoder
from lsr_prod.training.batches import TrainBatch, pad
from lsr_prod.training.objective import TrainingObjective
from lsr_prod.training.process_group import Group
from lsr_prod.training.replica import Replica, full_tensor, trained_parameters
from lsr_prod.training.retrieval.gradient import StepPlan, backward
from tests.training.gloo import run_workers

pytestmark = pytest.mark.long

CPU = torch.device("cpu")
OBJECTIVE = ObjectiveSettings(
    losses=[LossSettings(loss="info_nce")],
    sparsity=SparsitySettings(
        regularizers=[RegularizerSettings(regularizer="flops", query=0.1, document=0.1, ramp="none")]
    ),
)


def _gradients(
    rank: int, world: int, model: str, strategy: Any, chunk: int | None, accumulate: int, missing: bool = False
) -> dict[str, Tensor]:
    """The whole gradient of one and the same batch, of which this worker has a share."""
    group = Group(rank, world, CPU)
    replica = Replica(SparseEncoder.load(Path(model)).eval(), strategy, group)
    return _back(replica, group, chunk, accumulate, missing=missing)


def _back(
    replica: Replica,
    group: Group,
    chunk: int | None = None,
    accumulate: int = 1,
    seed: int = 7,
    missing: bool = False,
) -> dict[str, Tensor]:
    encoder, rank, world = replica.encoder, group.rank, group.world
    draw = np.random.default_rng(seed)
    texts = [np.array([101, *draw.integers(1000, 30000, 3 + i % 4), 102], np.int32) for i in range(16)]
    parts = []
    for rows in np.split(np.arange(8), accumulate):
        own = np.array_split(rows, world)[rank]
        documents, present = [texts[8 + i] for i in own], None
        if missing:  # the first half of the queries has no hard negatives
            documents = [texts[j] for i in own for j in ([8 + i] if i < 4 else [8 + i, i, i - 1])]
            present = torch.tensor([[True, i >= 4, i >= 4] for i in own])
        parts.append(TrainBatch(pad([texts[i] for i in own], 0), pad(documents, 0), None, present))
    loss = TrainingObjective(OBJECTIVE, vocabulary=encoder.vocabulary, steps=10)
    plan = StepPlan(group, chunk, bf16=False, seed=0)
    backward(replica, loss, parts, step=1, plan=plan, negatives=None)
    return {name: full_tensor(p.grad) for name, p in trained_parameters(encoder.model).items() if p.grad is not None}


def _steps(rank: int, model: str, strategy: Any, seeds: list[int]) -> dict[str, Tensor]:
    """The last gradient of some, on three workers of one process each."""
    group = Group(rank, 3, CPU)
    replica = Replica(SparseEncoder.load(Path(model)).eval(), strategy, group)
    for seed in seeds:
        replica.encoder.zero_grad()
        found = _back(replica, group, seed=seed)
    return found


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_gradient_does_not_depend_on_earlier_steps_of_process(tiny_model: Path, strategy: str) -> None:
    later, first = (run_workers(_steps, 3, str(tiny_model), strategy, seeds)[0] for seeds in ([1, 2], [2]))
    assert sorted(later) == sorted(first)
    assert [name for name, gradient in later.items() if not torch.equal(gradient, first[name])] == []


@pytest.fixture(scope="module")
def alone(tiny_model: Path) -> dict[int, dict[str, Tensor]]:
    return {parts: _gradients(0, 1, str(tiny_model), "ddp", None, parts) for parts in (1, 2)}


@pytest.mark.parametrize(
    ("chunk", "accumulate", "strategy"),
    [
        (None, 1, "fsdp"),
        (3, 2, "ddp"),
        pytest.param(None, 1, "ddp", marks=pytest.mark.slow),
        pytest.param(3, 2, "fsdp", marks=pytest.mark.slow),
    ],
)
def test_two_workers_have_same_gradient_as_one(
    tiny_model: Path, alone: dict[int, dict[str, Tensor]], strategy: str, chunk: int | None, accumulate: int
) -> None:
    for found in run_workers(_gradients, 2, 2, str(tiny_model), strategy, chunk, accumulate):
        assert sorted(found) == sorted(alone[accumulate])
        for name, expected in alone[accumulate].items():
            torch.testing.assert_close(found[name], expected, rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize(
    ("strategy", "chunk"),
    [
        ("ddp", None),
        ("fsdp", 3),
        pytest.param("fsdp", None, marks=pytest.mark.slow),
        pytest.param("ddp", 3, marks=pytest.mark.slow),
    ],
)
def test_two_workers_with_different_numbers_of_documents_have_same_gradient_as_one(
    tiny_model: Path, strategy: str, chunk: int | None
) -> None:
    alone = _gradients(0, 1, str(tiny_model), "ddp", None, 1, True)
    for found in run_workers(_gradients, 2, 2, str(tiny_model), strategy, chunk, 1, True):
        for name, expected in alone.items():
            torch.testing.assert_close(found[name], expected, rtol=1e-4, atol=1e-5, msg=name)
