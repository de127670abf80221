"""What the stages on plain text minimise, against the papers' formulas on whole logits of small models."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from lsr_prod.config.language import (
    AdaptCausalSettings,
    AdaptMlmSettings,
    DistilHeadSettings,
    LanguageSettings,
    PretrainEmlmSettings,
)
from lsr_prod.model import SparseEncoder
from lsr_prod.storage.formats.sparse import SparseBatch
from lsr_prod.training.data.training_set import Example
from lsr_prod.training.language.objective import LanguageBatch, LanguageModule
from lsr_prod.training.language.trainer import make_objective
from tests.model.tiny import CAUSAL, VOCABULARY, tiny_checkpoint
from tests.training.texts import worded_start

COMMON: dict[str, Any] = {"data": {"paths": ["x"], "kind": "texts"}, "steps": 1}
ROWS = np.arange(4)
NOTHING = np.empty(0, np.int32)


def settings(kind: type[LanguageSettings], name: str, **changes: Any) -> Any:
    return kind.model_validate({"stage": name, **COMMON, **changes})


def text(*ids: int) -> np.ndarray:
    return np.array(ids, np.int32)


def whole_logits(encoder: SparseEncoder, batch: LanguageBatch) -> torch.Tensor:
    """[B, L, V], as transformers makes them."""
    with torch.no_grad():
        return encoder.model(input_ids=batch.inputs[0], attention_mask=batch.inputs[1]).logits


def dense(vectors: SparseBatch) -> np.ndarray:
    found = np.zeros((len(vectors), 92))
    for i in range(len(vectors)):
        terms, weights = vectors.row(i)
        found[i, terms] = weights
    return found


def sums(encoder: SparseEncoder, objective: Any, batch: LanguageBatch) -> tuple[float, list[float]]:
    with torch.no_grad():
        total, parts = LanguageModule(encoder, objective)(*batch.inputs)
    return float(total), parts.tolist()


@pytest.mark.parametrize("architecture", ["bert", "modernbert", "albert"])
def test_masked_token_loss_is_cross_entropy(tmp_path: Path, architecture: str) -> None:
    encoder = SparseEncoder.load(tiny_checkpoint(tmp_path / "m", architecture))
    stage = settings(AdaptMlmSettings, "adapt_mlm", mask_rate=0.5, seed=3)
    objective = make_objective(stage, encoder, new_tokens=[20, 21])
    examples = [Example(NOTHING, (text(2, *range(20, 24 + n), 3),), None) for n in range(4)]
    batch = objective.batch(examples, ROWS, 5)
    ids, mask, places, labels = batch.inputs
    assert batch.predicted == len(places) == len(labels) > 0
    assert batch.tokens == int(mask.sum()) == sum(6 + n for n in range(4))
    assert not set(labels.tolist()) & {2, 3}, "special tokens are never masked"
    original = np.zeros(ids.shape, np.int64)
    for row, example in enumerate(examples):
        original[row, : len(example.documents[0])] = example.documents[0]
    assert (original.reshape(-1)[places] == labels.numpy()).all()
    logits = whole_logits(encoder, batch).flatten(0, 1)[places]
    total, (entropy, hits) = sums(encoder, objective, batch)
    assert total == entropy == pytest.approx(float(cross_entropy(logits, labels, reduction="sum")), rel=1e-5)
    assert hits == int((logits.argmax(dim=1) == labels).sum())


def test_new_tokens_are_masked_more_often(tmp_path: Path) -> None:
    encoder = SparseEncoder.load(tiny_checkpoint(tmp_path / "m", "bert"))
    objective = make_objective(settings(AdaptMlmSettings, "adapt_mlm"), encoder, new_tokens=range(20, 30))
    examples = [Example(NOTHING, (text(2, *range(20, 50), 3),), None)]
    labels = [
        label for step in range(600) for label in objective.batch(examples, ROWS[:1], step).inputs[3].tolist()
    ]  # fmt: skip
    new = sum(20 <= label < 30 for label in labels)
    # 10 new tokens of weight 2 and 20 old ones: half of the masks, and 30 % of all tokens.
    assert len(labels) == pytest.approx(600 * 30 * 0.3, rel=0.05)
    assert new / len(labels) == pytest.approx(0.5, abs=0.03)


def test_masked_word_loss_is_cross_entropy_over_words(tmp_path: Path) -> None:
    encoder = SparseEncoder.load(worded_start(tmp_path / "m"))
    stage = settings(PretrainEmlmSettings, "pretrain_emlm", mask_share=0.5)
    objective = make_objective(stage, encoder)
    spans = np.array([1, 3, 50, 3, 4, 7, 4, 6, 9], np.int32)
    examples = [Example(NOTHING, (text(2, 20, 21, 22, 23, 24, 3), spans), None)] * 4
    batch = objective.batch(examples, ROWS, 0)
    logits = whole_logits(encoder, batch).flatten(0, 1)[batch.inputs[2]]
    assert logits.shape[1] == len(encoder.vocabulary) == 92
    total, (entropy, _) = sums(encoder, objective, batch)
    assert set(batch.inputs[3].tolist()) <= {50, 7, 9}
    assert total == entropy == pytest.approx(
        float(cross_entropy(logits, batch.inputs[3], reduction="sum")), rel=1e-5
    )  # fmt: skip


@pytest.mark.parametrize("architecture", CAUSAL)
@pytest.mark.parametrize("relu_weight", [0.0, 1.0])
def test_next_token_loss_matches_listing_of_paper(tmp_path: Path, architecture: str, relu_weight: float) -> None:
    encoder = SparseEncoder.load(tiny_checkpoint(tmp_path / "m", architecture), attention="bidirectional")
    stage = settings(AdaptCausalSettings, "adapt_causal", relu_weight=relu_weight)
    objective = make_objective(stage, encoder)
    examples = [Example(NOTHING, (text(*range(20, 36)),), None), Example(NOTHING, (text(*range(30, 38)),), None)]
    batch = objective.batch(examples, ROWS[:2], 0)
    assert batch.predicted == 15 + 7
    logits = whole_logits(encoder, batch)
    clm = adapt = 0.0
    for row, length in ((0, 16), (1, 8)):
        shifted, targets = logits[row, : length - 1], batch.inputs[0][row, 1:length]
        clm += float(cross_entropy(shifted, targets, reduction="sum"))
        adapt += float(cross_entropy(torch.log(1 + torch.relu(shifted)), targets, reduction="sum"))
    total, parts = sums(encoder, objective, batch)
    assert parts[0] == pytest.approx(clm, rel=1e-5)
    assert parts[1] == pytest.approx(adapt if relu_weight else 0.0, rel=1e-5)
    assert total == pytest.approx(clm + relu_weight * adapt, rel=1e-5)


@pytest.mark.parametrize("loss", ["mse", "cosine"])
def test_distillation_loss_is_distance_to_teacher_vectors(tmp_path: Path, loss: str) -> None:
    folder = worded_start(tmp_path / "m")
    encoder, teacher = SparseEncoder.load(folder), SparseEncoder.load(folder)
    with torch.no_grad():
        teacher.model.get_output_embeddings().weight.mul_(2)
    teacher.save(tmp_path / "teacher")
    stage = settings(DistilHeadSettings, "distil_head", teacher=str(tmp_path / "teacher"), loss=loss)
    objective = make_objective(stage, encoder, teacher=tmp_path / "teacher")
    words = [" ".join(VOCABULARY[20 : 24 + n]) for n in range(3)]
    ids = [text(2, *range(20, 24 + n), 3) for n in range(3)]
    batch = objective.batch([Example(one, (one,), None) for one in ids], ROWS[:3], 0)
    mine, theirs = (dense(one.encode(words)) for one in (encoder, teacher))
    if loss == "mse":
        wanted = float(((mine - theirs) ** 2).sum())
    else:
        norms = np.linalg.norm(mine, axis=1) * np.linalg.norm(theirs, axis=1)
        wanted = float((1 - (mine * theirs).sum(axis=1) / norms).sum())
    total, parts = sums(encoder, objective, batch)
    assert total == parts[0] == pytest.approx(wanted, rel=1e-4)
    assert parts[1:] == [np.count_nonzero(mine), np.count_nonzero(theirs)]
    assert not any(name.startswith("_") for name, _ in LanguageModule(encoder, objective).named_parameters())
    assert len(list(LanguageModule(encoder, objective).parameters())) == len(list(encoder.parameters()))
