"""The gradient cache gives the gradient of the whole batch; parts give the mean of theirs."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from lsr_prod.config.objective import LossSettings, ObjectiveSettings, RegularizerSettings, SparsitySettings
from lsr_prod.model import SparseEncoder
from lsr_prod.training.batches import TrainBatch, pad
from lsr_prod.training.objective import TrainingObjective
from lsr_prod.training.process_group import Group
from lsr_prod.training.replica import Replica
from lsr_prod.training.retrieval.gradient import EncodedPart, StepPlan, backward
from lsr_prod.training.twins import seed_torch
from tests.quick import first_quick

GROUP = Group(0, 1, torch.device("cpu"))
OBJECTIVE = ObjectiveSettings(
    losses=[LossSettings(loss="info_nce")],
    sparsity=SparsitySettings(
        regularizers=[
            RegularizerSettings(regularizer="flops", query=0.1, document=0.1, ramp="none"),
            RegularizerSettings(regularizer="joint_flops", joint=0.3, ramp="none"),
        ]
    ),
)


def _batch(queries: int = 4, seed: int = 0) -> TrainBatch:
    draw = np.random.default_rng(seed)

    def texts(count: int, longest: int) -> list[np.ndarray]:
        return [
            np.array([101, *draw.integers(1000, 30000, draw.integers(1, longest)), 102], np.int32) for _ in range(count)
        ]

    return TrainBatch(pad(texts(queries, 8), 0), pad(texts(queries, 16), 0), None)


def _incomplete() -> TrainBatch:
    """Three queries with places for two hard negatives: the first has none, the second one, the third both."""
    present = torch.tensor([[True, False, False], [True, True, False], [True, True, True]])
    queries, documents = _batch(3).queries, _batch(6, seed=1).documents
    return TrainBatch(queries, documents, None, present)


def _gradient(
    model: Path, parts: list[TrainBatch], *, chunk: int | None = None, dropout: bool = False
) -> tuple[dict[str, Tensor], list[EncodedPart]]:
    encoder = SparseEncoder.load(model)
    encoder.train(dropout)
    loss = TrainingObjective(OBJECTIVE, vocabulary=encoder.vocabulary, steps=10)
    plan = StepPlan(GROUP, chunk, bf16=False, seed=3)
    encoded = backward(Replica(encoder, "ddp", GROUP), loss, parts, step=4, plan=plan, negatives=None)
    gradients = {name: p.grad for name, p in encoder.model.named_parameters() if p.grad is not None}
    return gradients, encoded


@pytest.mark.parametrize("chunk", first_quick([3, 1, 100]))
def test_gradient_cache_gives_gradient_of_whole_batch(tiny_model: Path, chunk: int) -> None:
    whole, [at_once] = _gradient(tiny_model, [_batch()])
    cached, [in_chunks] = _gradient(tiny_model, [_batch()], chunk=chunk)
    torch.testing.assert_close(in_chunks.terms.parts, at_once.terms.parts, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(cached, whole, rtol=1e-4, atol=1e-5)


def test_gradient_cache_uses_same_dropout_in_both_passes(tiny_model: Path) -> None:
    part = _batch()
    cached, _ = _gradient(tiny_model, [part], chunk=100, dropout=True)

    encoder = SparseEncoder.load(tiny_model).train()
    vectors = []
    for chunk, texts in enumerate((part.queries, part.documents)):
        seed_torch(3, 4, 0, 0, chunk)
        width = int(texts.attention_mask.sum(dim=1).max())  # a chunk is as wide as its longest text
        vectors.append(encoder(texts.input_ids[:, :width], texts.attention_mask[:, :width]))
    loss = TrainingObjective(OBJECTIVE, vocabulary=encoder.vocabulary, steps=10)
    torch.autograd.backward(loss(*vectors, teacher=None, step=4).total)
    expected = {name: p.grad for name, p in encoder.model.named_parameters() if p.grad is not None}
    torch.testing.assert_close(cached, expected, rtol=1e-4, atol=1e-5)


def test_accumulated_parts_give_mean_of_gradients(tiny_model: Path) -> None:
    parts = [_batch(3, seed) for seed in range(2)]
    together, _ = _gradient(tiny_model, parts)
    alone = [_gradient(tiny_model, [part])[0] for part in parts]
    mean = {name: (alone[0][name] + alone[1][name]) / 2 for name in together}
    torch.testing.assert_close(together, mean, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("chunk", first_quick([1, 4, None]))
def test_missing_negatives_have_no_part_in_loss_and_gradient(tiny_model: Path, chunk: int | None) -> None:
    part = _incomplete()
    ours, [encoded] = _gradient(tiny_model, [part], chunk=chunk)
    assert len(encoded.documents) == 6  # figures and queues see no vector of a missing text

    encoder = SparseEncoder.load(tiny_model)
    queries = encoder(part.queries.input_ids, part.queries.attention_mask)
    documents = encoder(part.documents.input_ids, part.documents.attention_mask)
    positives = torch.tensor([0, 1, 3])
    loss = torch.nn.functional.cross_entropy(queries @ documents.T, positives)
    loss = loss + 0.1 * queries.mean(0).square().sum() + 0.1 * documents.mean(0).square().sum()
    loss = loss + 0.3 * queries.mean(0) @ documents.mean(0)
    torch.testing.assert_close(encoded.terms.parts["total"], loss.detach(), rtol=1e-5, atol=1e-6)
    loss.backward()
    expected = {name: p.grad for name, p in encoder.model.named_parameters() if p.grad is not None}
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)
