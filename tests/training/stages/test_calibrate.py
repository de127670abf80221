from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from lsr_prod.config.vocabulary import CalibrateSettings
from lsr_prod.errors import ConfigError
from lsr_prod.model import SparseEncoder
from lsr_prod.model.backbone import output_layer
from lsr_prod.training.stages.calibrate import check, run
from lsr_prod.training.stages.facts import ModelFacts
from tests.model.tiny import WORDS, tiny_checkpoint
from tests.vocabulary.corpora import random_texts, write_texts


def settings(**fields: Any) -> CalibrateSettings:
    return CalibrateSettings.model_validate({"stage": "calibrate", **fields})


def test_given_constant_is_subtracted_from_bias(tmp_path: Path):
    encoder = SparseEncoder.load(tiny_checkpoint(tmp_path / "bert", "bert"))
    before = output_layer(encoder.model)[1].detach().clone()
    made, summary = run(encoder, settings(shift=5), options={}, scratch=tmp_path)
    made.save(tmp_path / "model")
    torch.testing.assert_close(output_layer(SparseEncoder.load(tmp_path / "model").model)[1].detach(), before - 5)
    assert torch.equal(output_layer(encoder.model)[1], before)
    assert summary == {"shift": 5.0}


@pytest.mark.parametrize("architecture", ["bert", "qwen3"])
def test_constant_is_chosen_for_activation_rate(tmp_path: Path, architecture: str):
    encoder = SparseEncoder.load(tiny_checkpoint(tmp_path / "source", architecture))
    data = write_texts(tmp_path, random_texts(WORDS, 600, 12))
    stage = settings(activation_rate=0.4, data=data.model_dump(mode="json"), texts=600, max_length=14)
    pins, facts = check(stage, ModelFacts.of(encoder), {})
    made, summary = run(encoder, stage, options={}, scratch=tmp_path)
    assert set(pins) == {"data"}
    assert facts.has_bias
    assert ModelFacts.of(made).has_bias
    assert summary["activation_rate"] == pytest.approx(0.4, abs=1e-4)
    assert summary["held_out"] == pytest.approx(0.4, abs=0.01)
    assert abs(summary["held_out_before"] - 0.4) > 0.02
    made.save(tmp_path / "model")
    dense = SparseEncoder.load(tmp_path / "model").encode(random_texts(WORDS, 600, 12)[:200])
    assert len(dense.terms) / (200 * 97) == pytest.approx(0.4, abs=0.03)


@pytest.mark.parametrize(
    "fields",
    [{}, {"shift": 1, "activation_rate": 0.3}, {"activation_rate": 0.3}, {"activation_rate": 1.5}],
    ids=["none", "both", "no data", "not a share"],
)
def test_contradictory_settings_are_refused(fields: dict[str, Any]):
    with pytest.raises(ValidationError):
        settings(**fields)


def test_missing_texts_and_unsupported_length_are_refused(tmp_path: Path):
    facts = ModelFacts.of(SparseEncoder.load(tiny_checkpoint(tmp_path / "bert", "bert")))
    nowhere = {"paths": [str(tmp_path / "nowhere.jsonl")], "kind": "texts"}
    with pytest.raises(ConfigError, match=r"data\.paths"):
        check(settings(activation_rate=0.3, data=nowhere), facts, {})
    with pytest.raises(ConfigError, match="max_length: 5000 is outside the lengths of this model"):
        check(settings(shift=1, max_length=5000), facts, {})
