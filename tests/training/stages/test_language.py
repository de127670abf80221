"""Stages on plain text on Ray Train with real workers, validations and checkpoints."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from lsr_prod.config import Deployment
from lsr_prod.model import SparseEncoder
from lsr_prod.model.backbone import output_layer
from lsr_prod.storage.formats.bundle_format import EncoderCard
from lsr_prod.training.chain import run_chain
from lsr_prod.training.observers.reports import read_log
from tests.faults.training.run import Training
from tests.model.tiny import tiny_checkpoint
from tests.training.small import difference, weights_of
from tests.training.texts import causal_start, text_training, worded_start, write_texts

LENGTH = {"max_length": 16}


def train(folder: Path, start: Path, kind: str, *, workers: int = 1, **stage: Any) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    settings = text_training(folder, start, kind, workers=workers, **stage)
    return run_chain(Deployment.model_validate(settings))["stage_rows"][0]


def reports(folder: Path) -> list[dict[str, Any]]:
    (log,) = (folder / "work" / "runs").glob("*/steps.jsonl")
    return [report["values"] for report in read_log(log)]


def weights(model: Path) -> dict[str, torch.Tensor]:
    encoder = SparseEncoder.load(model)
    return {name: value.detach() for name, value in encoder.model.named_parameters()}


def changed(before: Path, after: Path) -> set[str]:
    mine, theirs = weights(before), weights(after)
    return {name for name in mine if not torch.equal(mine[name], theirs[name])}


@pytest.mark.long
@pytest.mark.usefixtures("ray_local")
def test_adapt_mlm_trains_embeddings_only(tmp_path: Path) -> None:
    start = tiny_checkpoint(tmp_path / "start", "bert")
    validation = {"data": {"paths": [str(write_texts(tmp_path / "more.jsonl", 20))], "kind": "texts"}, "every": 6}
    row = train(tmp_path, start, "adapt_mlm", workers=2, new_token_weight=1, validation=validation, **LENGTH)
    assert changed(start, tmp_path / "out") == {"bert.embeddings.word_embeddings.weight", "cls.predictions.bias"}
    assert (row["rows"], row["steps"], row["quarantined"]) == (48, 12, 0)
    found = reports(tmp_path)
    assert found[-1]["loss"] < found[1]["loss"]
    validated = [one["validation/masked_tokens"] for one in found if "validation/masked_tokens" in one]
    assert len(validated) == 3  # before the first step, and after 6 and 12
    assert "loss" not in found[0]
    assert (row["start"], row["best"]) == (validated[0], min(validated))
    assert "validation/accuracy" in row
    assert 0 <= row["accuracy"] <= 1


@pytest.mark.slow
@pytest.mark.usefixtures("ray_local")
def test_pretrain_emlm_validates_words_by_sub_tokens(tmp_path: Path) -> None:
    start = worded_start(tmp_path / "start")
    validation = {"data": {"paths": [str(write_texts(tmp_path / "more.jsonl", 20))], "kind": "texts"}, "every": 12}
    row = train(tmp_path, start, "pretrain_emlm", validation=validation, **LENGTH)
    card = EncoderCard.load(tmp_path / "out")
    assert (card.output_vocabulary, card.vocabulary_size) == ("words", 92)
    assert row["validation/firstword/masked_words"] > 0
    assert "validation/subword/masked_words" not in row  # every word is one token here


@pytest.mark.slow
@pytest.mark.usefixtures("ray_local")
def test_adapt_causal_trains_on_packed_blocks(tmp_path: Path) -> None:
    start = causal_start(tmp_path / "start")
    row = train(tmp_path, start, "adapt_causal", batch={"texts": 4, "accumulate": 2}, max_length=20, steps=20)
    # 48 texts of 3 to 8 words, each with the start token and the end token.
    assert row["rows"] == -(-(sum(3 + i % 6 for i in range(48)) + 2 * 48) // 20)
    found = reports(tmp_path)
    assert found[-1]["loss"] < found[0]["loss"]
    assert found[-1]["loss"] == pytest.approx(found[-1]["loss_next_token"] + found[-1]["loss_activated_next_token"])
    assert (
        SparseEncoder.load(tmp_path / "out").card.document_max_length
        == SparseEncoder.load(start).card.document_max_length
    )


@pytest.mark.slow
@pytest.mark.usefixtures("ray_local")
def test_distil_head_trains_head_only_with_another_tokenizer(tmp_path: Path) -> None:
    start = worded_start(tmp_path / "start")
    teacher = SparseEncoder.load(start)
    with torch.no_grad():
        output_layer(teacher.model)[0].mul_(1.3)
    teacher.save(tmp_path / "teacher")
    row = train(tmp_path, start, "distil_head", teacher=str(tmp_path / "teacher"), steps=30, **LENGTH)
    assert changed(start, tmp_path / "out") <= {name for name in weights(start) if not name.startswith("bert.")}
    found = reports(tmp_path)
    assert found[-1]["loss"] < 0.5 * found[0]["loss"]
    assert found[-1]["l0_teacher"] > 0
    assert row["l0_document"] == found[-1]["l0_document"]


@pytest.mark.slow
@pytest.mark.usefixtures("ray_local")
@pytest.mark.parametrize(("strategy", "trained"), [("ddp", "all"), ("fsdp", "embeddings")])
def test_two_workers_train_same_model_as_one(tmp_path: Path, strategy: str, trained: str) -> None:
    start = tiny_checkpoint(tmp_path / "start", "bert")
    stage = {"dropout": 0.0, "trained": trained, "new_token_weight": 1, **LENGTH}
    train(tmp_path / "one", start, "adapt_mlm", batch={"texts": 9}, **stage)
    train(tmp_path / "two", start, "adapt_mlm", workers=2, batch={"texts": 9}, scale={"strategy": strategy}, **stage)
    losses = [[one["loss"] for one in reports(tmp_path / name)] for name in ("one", "two")]
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)
    assert difference(tmp_path / "one" / "out", tmp_path / "two" / "out") < 1e-3


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "victim"), [("adapt_mlm", "job"), ("adapt_causal", "worker")])
def test_kill_during_checkpoint_keeps_result_equal_to_the_bit(tmp_path: Path, kind: str, victim: str) -> None:
    start = tiny_checkpoint(tmp_path / "start", "bert" if kind == "adapt_mlm" else "llama")
    more = {"new_token_weight": 1} if kind == "adapt_mlm" else {"max_length": 24}
    found = []
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
        settings = text_training(tmp_path / name, start, kind, workers=2, steps=60, **more)
        training = Training(settings, tmp_path / name)
        training.start()
        if name == "killed":
            try:
                assert training.kill(victim, "checkpoint", random.Random(3))
                while training.finish() is None:
                    training.start()
            finally:
                training.stop()
        else:
            training.finish()
        found.append((weights_of(tmp_path / name / "out"), [one["loss"] for one in reports(tmp_path / name)]))
    assert found[0] == found[1]
