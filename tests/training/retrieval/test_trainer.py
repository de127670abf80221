"""The training of one worker, in process: a run that was cut anywhere ends with the same bits."""

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from lsr_prod.config.language import WatchSettings
from lsr_prod.config.training import FinetuneSettings
from lsr_prod.errors import ConfigError, TrainingCollapsedError
from lsr_prod.model import SparseEncoder
from lsr_prod.training.data.training_set import Example, SampleRows
from lsr_prod.training.encoder_setup import set_dropout
from lsr_prod.training.loop.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from lsr_prod.training.observers.activity import CollapseGuard
from lsr_prod.training.process_group import Group
from lsr_prod.training.retrieval.trainer import Trainer
from lsr_prod.training.stage_trainer import check_batch, check_unique, total_steps
from tests.model.tiny import tiny_checkpoint
from tests.quick import first_quick

ALONE = Group(0, 1, torch.device("cpu"))
BASE = {
    "data": {"paths": ["x"], "kind": "negatives"},
    "batch": {"queries": 4, "negatives": 1},
    "steps": 4,
    "optimizer": {"learning_rate": 1e-3},
    "objective": {
        "losses": [{"loss": "info_nce"}],
        "sparsity": {"regularizers": [{"regularizer": "df_flops", "document": 0.1, "df_every": 2}]},
    },
}


class Words(SampleRows):
    """Texts of a tiny model's words: a document has the word of its query."""

    def __init__(self, rows: int) -> None:
        super().__init__(
            [
                Example(np.array([2, one, 3], np.int32), (np.array([2, one, 8 + one % 5, 3], np.int32),), None)
                for one in range(8, 8 + rows)
            ]
        )


class Rows(SampleRows):
    """Random texts."""

    def __init__(self, rows: int) -> None:
        draw = np.random.default_rng(5)
        super().__init__([Example(_text(draw, 6), tuple(_text(draw, 12) for _ in range(3)), None) for _ in range(rows)])


def _text(draw: np.random.Generator, longest: int) -> np.ndarray:
    return np.array([101, *draw.integers(1000, 30000, draw.integers(1, longest)), 102], np.int32)


def _settings(**changes: object) -> FinetuneSettings:
    return FinetuneSettings.model_validate({**BASE, **changes})


def _trainer(model: Path, settings: FinetuneSettings) -> Trainer:
    return Trainer(SparseEncoder.load(model), Rows(9), settings, ALONE)  # type: ignore[arg-type]


def _bits(trainer: Trainer) -> Mapping[str, Tensor]:
    return {name: p.detach().clone() for name, p in trainer.encoder.model.named_parameters()}


@pytest.mark.parametrize(
    "changes",
    first_quick(
        [
            {},
            {"batch": {"queries": 4, "negatives": 2, "accumulate": 2, "chunk": 3}, "scale": {"precision": "bf16"}},
            {"objective": {"losses": [{"loss": "info_nce"}], "queue": {"size": 10, "momentum": 0.9}}},
            {"scale": {"lora": {"rank": 2, "dropout": 0.1}, "gradient_checkpointing": True}},
        ]
    ),
    ids=["df_flops", "cached_bf16", "queue", "lora"],
)
def test_run_resumed_from_checkpoint_is_bit_identical(
    tiny_model: Path, tmp_path: Path, changes: dict[str, object]
) -> None:
    settings = _settings(**changes)
    whole = _trainer(tiny_model, settings)
    losses = [whole.train_step().losses for _ in range(4)]

    first = _trainer(tiny_model, settings)
    for _ in range(2):
        first.train_step()
    write_checkpoint(tmp_path, Checkpoint(first.step, first.tensors(keep=True), {}), name="stage")
    torch.manual_seed(99)  # nothing may hang on what was drawn before
    second = _trainer(tiny_model, settings)
    found = read_checkpoint(tmp_path, name="stage")
    second.load(found.step, found.tensors)
    assert [second.train_step().losses for _ in range(2)] == losses[2:]
    assert second.step == second.steps == 4
    before, after = _bits(whole), _bits(second)
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.long
def test_training_lowers_loss(tiny_model: Path) -> None:
    trainer = _trainer(tiny_model, _settings(steps=30, dropout=0.0, batch={"queries": 8}))
    losses = [trainer.train_step().losses["info_nce"] for _ in range(30)]
    assert np.mean(losses[-5:]) < 0.5 * np.mean(losses[:5])


def test_lora_training_does_not_change_base_weights(tiny_model: Path) -> None:
    trainer = _trainer(tiny_model, _settings(scale={"lora": {"rank": 2}}))
    plain = SparseEncoder.load(tiny_model).model.state_dict()
    trainer.train_step()
    weights = trainer.weights(keep=True)
    assert {name.split(".")[-1] for name in weights} == {"weight", "bias"}
    assert all("lora_" in name or name == "cls.predictions.bias" for name in weights)
    frozen = trainer.encoder.model.bert.embeddings.word_embeddings.weight
    assert torch.equal(frozen, plain["bert.embeddings.word_embeddings.weight"])


def test_total_steps_from_steps_or_epochs() -> None:
    assert total_steps(_settings(), 1000) == 4
    changed = {**BASE, "epochs": 2.5}
    del changed["steps"]
    assert total_steps(FinetuneSettings.model_validate(changed), 103) == round(2.5 * 25)


def _watched(model: Path, learning_rate: float) -> list[dict[str, float]]:
    """Train with the collapse guard; return the figures by step."""
    optimizer = {"learning_rate": learning_rate, "warmup_steps": 0, "schedule": "constant"}
    settings = _settings(
        steps=30, dropout=0.0, batch={"queries": 8}, optimizer=optimizer, objective={"losses": [{"loss": "info_nce"}]}
    )
    trainer = Trainer(SparseEncoder.load(model), Words(64), settings, ALONE)  # type: ignore[arg-type]
    guard, found = CollapseGuard(WatchSettings(patience=8), ramps_end=0), []
    for _ in range(30):
        result = trainer.train_step()
        values = {"loss_info_nce": result.losses["info_nce"], **result.figures(), **trainer.figures()}
        guard.check(trainer.step, values)
        found.append(values)
    return found


def test_guard_ends_training_that_collapses_to_equal_vectors(tmp_path: Path) -> None:
    start = tiny_checkpoint(tmp_path / "bert", "bert")
    with pytest.raises(TrainingCollapsedError, match=r"nearly the same vector .* the loss is at chance \(2.0"):
        _watched(start, 0.1)


def test_guard_accepts_healthy_training_that_starts_at_chance(tmp_path: Path) -> None:
    start = tiny_checkpoint(tmp_path / "bert", "bert")
    found = _watched(start, 1e-3)
    assert found[0]["cosine_document"] > 0.9
    assert found[-1]["loss_info_nce"] < 0.5 * found[-1]["chance"]
    assert found[-1]["chance"] == pytest.approx(math.log(8))


@pytest.mark.parametrize(
    ("changes", "rows", "workers", "field"),
    [
        ({"batch": {"queries": 10, "negatives": 1}}, 9, 1, "batch.queries"),
        ({"batch": {"queries": 8, "negatives": 1, "accumulate": 4}}, 9, 3, "train.workers"),
        ({"batch": {"queries": 8, "negatives": 1}, "scale": {"strategy": "fsdp"}}, 9, 3, "batch.queries"),
    ],
)
def test_check_batch_rejects_batch_that_cannot_be_filled(
    changes: dict[str, object], rows: int, workers: int, field: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        check_batch(_settings(**changes), rows, workers)
    assert caught.value.field == field


def test_check_unique_rejects_data_with_too_few_different_rows() -> None:
    unique = _settings(batch={"queries": 8, "negatives": 1, "unique": True})
    check_unique(unique, 8, 9)
    check_unique(_settings(), 1, 1)
    with pytest.raises(ConfigError, match=r"9 different queries and 7 different positives.*lower batch.queries to 7"):
        check_unique(unique, 9, 7)


def test_trainer_masks_false_negatives_unless_told_otherwise(tiny_model: Path) -> None:
    """Of a batch whose rows are all equal, only hard negatives are negatives."""
    losses = {}
    for masked in (True, False):
        changes = {"losses": [{"loss": "n_pair"}], "mask_false_negatives": masked}
        trainer = _trainer(tiny_model, _settings(objective=changes, dropout=0.0))
        (rows,) = trainer._data._sets
        rows._examples = [rows._examples[0]] * rows.rows  # type: ignore[attr-defined]
        losses[masked] = trainer.train_step().losses["n_pair"]
    assert losses[True] == 0
    assert losses[False] == pytest.approx(np.log(4))


def test_set_dropout_changes_all_dropouts(tiny_model: Path) -> None:
    model = SparseEncoder.load(tiny_model).model
    set_dropout(model, 0.25)
    rates = {module.p for module in model.modules() if isinstance(module, torch.nn.Dropout)}
    assert rates == {0.25}
