"""Lengths of training and of the encoder card, without a training."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from lsr_prod.config import FinetuneSettings, TrainSettings
from lsr_prod.errors import ConfigError
from lsr_prod.model import SparseEncoder
from lsr_prod.storage.formats.bundle_format import EncoderCard
from lsr_prod.training.stages.finetune import _training_lengths, check
from lsr_prod.training.stages.stage_facts import ModelFacts
from tests.model.tiny import tiny_checkpoint

CARD = EncoderCard("BertForMaskedLM", 97, "", query_max_length=64, document_max_length=72)


def settings(**fields: Any) -> FinetuneSettings:
    stage = {"data": {"paths": ["a"], "kind": "pairs"}, "steps": 1, "objective": {"losses": [{"loss": "info_nce"}]}}
    return FinetuneSettings.model_validate({**stage, **fields})


@pytest.mark.parametrize(
    ("fields", "training", "card"),
    [
        ({}, (64, 72), (64, 72)),
        ({"query_max_length": 9, "document_max_length": 10}, (9, 10), (9, 10)),
        ({"document_max_length": 10, "card_document_max_length": 40}, (64, 10), (64, 40)),
        ({"card_query_max_length": 20}, (64, 72), (20, 72)),
    ],
)
def test_card_gets_card_lengths_and_training_set_those_of_training(
    tmp_path: Path, fields: dict[str, int], training: tuple[int, int], card: tuple[int, int]
) -> None:
    (tmp_path / "pairs.jsonl").write_text(json.dumps({"query": "w1", "positive": "w3"}) + "\n")
    stage = settings(**fields, data={"paths": [str(tmp_path / "pairs.jsonl")], "kind": "pairs"})
    facts = ModelFacts.of(SparseEncoder.load(tiny_checkpoint(tmp_path / "bert", "bert")))
    train = TrainSettings(model="m", output="o", work="w", stages=[stage])
    _, after = check(stage, train, facts, {})
    assert (after.query_max_length, after.document_max_length) == card
    lengths = _training_lengths(stage, CARD)
    assert (lengths.query_max_length, lengths.document_max_length) == training


def test_card_length_that_the_model_does_not_support_is_refused(tmp_path: Path) -> None:
    facts = ModelFacts.of(SparseEncoder.load(tiny_checkpoint(tmp_path / "bert", "bert")))
    stage = settings(card_document_max_length=73)
    train = TrainSettings(model="m", output="o", work="w", stages=[stage])
    with pytest.raises(ConfigError, match="card_document_max_length: 73 is outside the lengths of this model"):
        check(stage, train, facts, {})


@pytest.mark.parametrize(
    ("fields", "warnings"),
    [
        ({}, 0),
        ({"document_max_length": 10}, 1),
        ({"query_max_length": 9, "document_max_length": 10}, 2),
        ({"document_max_length": 72}, 0),
        ({"document_max_length": 10, "card_document_max_length": 72}, 0),
    ],
)
def test_training_length_that_shortens_the_card_is_reported(
    fields: dict[str, int], warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        _training_lengths(settings(**fields), CARD)
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == warnings
    assert all("also becomes the length of the trained model" in message for message in messages)
