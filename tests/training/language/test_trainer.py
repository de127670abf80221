"""The training of a language model by one worker, in process: a run that was cut anywhere ends with the same bits."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lsr_prod.config.training import STAGES
from lsr_prod.errors import ConfigError
from lsr_prod.model import SparseEncoder
from lsr_prod.training.data.training_set import Example
from lsr_prod.training.language.trainer import LanguageTrainer, make_objective
from lsr_prod.training.loop.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from lsr_prod.training.process_group import Group
from lsr_prod.training.stage_trainer import total_steps
from tests.model.tiny import tiny_checkpoint
from tests.quick import first_quick
from tests.training.texts import causal_start, worded_start

ALONE = Group(0, 1, torch.device("cpu"))
KINDS = ("adapt_mlm", "pretrain_emlm", "adapt_causal", "distil_head")


class Rows:
    """Random texts, every second token the one before it plus one, in the place of a training set."""

    def __init__(self, rows: int = 24) -> None:
        draw = np.random.default_rng(5)
        self.rows = rows
        self._examples = [self._example(draw, 3 + i % 7) for i in range(rows)]
        self.lengths = np.array([len(one.documents[0]) for one in self._examples], np.int32)

    @staticmethod
    def _example(draw: np.random.Generator, pairs: int) -> Example:
        first = draw.integers(20, 95, pairs)
        ids = np.array([2, *np.stack([first, first + 1], axis=1).ravel(), 3], np.int32)
        words = np.array([(1 + 2 * i, 3 + 2 * i, first[i] - 20) for i in range(pairs)], np.int32)
        return Example(ids, (ids, words.ravel()), None)

    def examples(self, rows: np.ndarray) -> list[Example]:
        return [self._examples[row] for row in rows]


@pytest.fixture(scope="module")
def starts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("starts")
    words = worded_start(folder / "words")
    masked = tiny_checkpoint(folder / "bert", "bert")
    causal = causal_start(folder / "llama")
    return {"adapt_mlm": masked, "pretrain_emlm": words, "adapt_causal": causal, "distil_head": words}


def trainer(starts: dict[str, Path], kind: str, group: Group = ALONE, **changes: Any) -> LanguageTrainer:
    base = {
        "stage": kind,
        "data": {"paths": ["x"], "kind": "texts"},
        "batch": {"texts": 8},
        "steps": 4,
        "optimizer": {"learning_rate": 3e-3},
        **({"teacher": str(starts["pretrain_emlm"])} if kind == "distil_head" else {}),
    }
    settings: Any = STAGES[kind].model_validate({**base, **changes})
    encoder = SparseEncoder.load(starts[kind])
    objective = make_objective(settings, encoder, new_tokens=range(20, 50), teacher=starts["pretrain_emlm"])
    if kind == "distil_head":  # a teacher that is another model
        with torch.no_grad():
            objective._teacher.model.get_output_embeddings().weight.mul_(1.5)  # type: ignore[attr-defined]
    return LanguageTrainer(encoder, Rows(), settings, group, objective)  # type: ignore[arg-type]


def bits(one: LanguageTrainer) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in one.encoder.model.named_parameters()}


def run(one: LanguageTrainer, steps: int) -> list[dict[str, float]]:
    return [one.train_step().losses for _ in range(steps)]


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        *((kind, {}) for kind in KINDS),
        ("adapt_mlm", {"trained": "all", "scale": {"precision": "bf16", "gradient_checkpointing": True}}),
        ("adapt_causal", {"batch": {"texts": 8, "accumulate": 4}, "scale": {"lora": {"rank": 2, "dropout": 0.1}}}),
    ],
    ids=[*KINDS, "bf16", "lora"],
)
def test_language_run_resumed_from_checkpoint_is_bit_identical(
    starts: dict[str, Path], tmp_path: Path, kind: str, changes: dict[str, Any]
) -> None:
    whole = trainer(starts, kind, **changes)
    losses = run(whole, 4)
    first = trainer(starts, kind, **changes)
    run(first, 2)
    write_checkpoint(tmp_path, Checkpoint(first.step, first.tensors(keep=True), {}), name="stage")
    torch.manual_seed(99)  # nothing may hang on what was drawn before
    second = trainer(starts, kind, **changes)
    found = read_checkpoint(tmp_path, name="stage")
    second.load(found.step, found.tensors)
    assert run(second, 2) == losses[2:]
    assert second.step == second.steps == 4
    before, after = bits(whole), bits(second)
    assert all(torch.equal(before[name], after[name]) for name in before)
    start = SparseEncoder.load(starts[kind]).model.state_dict()
    assert any(not torch.equal(before[name], start[name]) for name in before if name in start) or "scale" in changes


@pytest.mark.parametrize("kind", first_quick(KINDS))
def test_language_training_lowers_loss(starts: dict[str, Path], kind: str) -> None:
    one = trainer(starts, kind, steps=60, dropout=0.0, batch={"texts": 24}, trained=_all_but_head(kind))
    losses = [found["total"] for found in run(one, 60)]
    assert np.mean(losses[-10:]) < 0.93 * np.mean(losses[:10])


def _all_but_head(kind: str) -> str:
    return "head" if kind == "distil_head" else "all"


@pytest.mark.parametrize("kind", KINDS)
def test_accumulated_parts_give_gradient_of_whole_batch(starts: dict[str, Path], kind: str) -> None:
    found = []
    for accumulate in (1, 4):
        one = trainer(starts, kind, dropout=0.0, batch={"texts": 8, "accumulate": accumulate})
        found.append((run(one, 2), bits(one)))
    (losses, weights), (other_losses, other_weights) = found
    assert [one["total"] for one in losses] == pytest.approx([one["total"] for one in other_losses], rel=1e-4)
    # Adam makes full steps of gradients that are rounding errors, as those of keys' biases are.
    names = [name for name in weights if not name.endswith("key.bias")]
    assert max(float((weights[name] - other_weights[name]).abs().max()) for name in names) < 1e-3


@pytest.mark.parametrize(
    ("kind", "trained", "parts"),
    [
        ("adapt_mlm", "embeddings", ("bert.embeddings.word_embeddings.weight", "cls.predictions.bias")),
        ("pretrain_emlm", "embeddings", ("word_embeddings.weight", "cls.predictions.bias", "decoder.weight")),
        ("pretrain_emlm", "head", ("cls.predictions.",)),
        ("adapt_causal", "embeddings", ("model.embed_tokens.weight",)),
    ],
)
def test_frozen_weights_do_not_change(starts: dict[str, Path], kind: str, trained: str, parts: Sequence[str]) -> None:
    one = trainer(starts, kind, trained=trained)
    before = bits(one)
    run(one, 1)
    after = bits(one)
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved
    assert all(any(part in name for part in parts) for name in moved)
    assert {name for name in before if any(part in name for part in parts)} == moved == set(one.weights(keep=True))


def test_steps_and_throughput_are_counted(starts: dict[str, Path]) -> None:
    one = trainer(starts, "adapt_mlm", batch={"texts": 9}, steps=None, epochs=2.5)
    assert one.steps == total_steps(one._settings, 24) == round(2.5 * 2)
    found = one.train_step()
    assert found.texts == 9
    assert found.predicted is not None
    assert 0 < found.predicted < found.tokens
    assert 0 <= found.figures()["accuracy"] <= 1
    assert found.losses["total"] == pytest.approx(found.losses["masked_tokens"])


@pytest.mark.parametrize(
    ("batch", "world", "field"),
    [({"texts": 25}, 1, "batch.texts"), ({"texts": 8, "accumulate": 4}, 3, "train.workers")],
)
def test_check_batch_rejects_batch_that_cannot_be_filled(
    starts: dict[str, Path], batch: dict[str, int], world: int, field: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        trainer(starts, "adapt_mlm", Group(0, world, torch.device("cpu")), batch=batch)
    assert caught.value.field == field
