from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from lsr_prod.config.model import RescaleHeadSettings
from lsr_prod.errors import ConfigError
from lsr_prod.model import SparseEncoder
from lsr_prod.model.backbone import output_layer
from lsr_prod.training.stages.stage_facts import ModelFacts
from lsr_prod.training.stages.transformations import check_rescale_head as check
from lsr_prod.training.stages.transformations import rescale_head as run
from lsr_prod.training.vocabulary.head import head_norms, scale_head
from tests.model.tiny import tiny_checkpoint
from tests.training.vocabulary.corpora import write_pairs

PAIRS = [
    ("what is a neuron", "A neuron is a cell of the nervous system that sends electric signals."),
    ("capital of france", "Paris is the capital and the largest city of France."),
    ("how to brew coffee", "Coffee is brewed by pouring hot water onto ground coffee beans."),
    ("symptoms of flu", "The flu begins with fever, a sore throat, muscle pain and a headache."),
]


def settings(**fields: Any) -> RescaleHeadSettings:
    return RescaleHeadSettings.model_validate({"stage": "rescale_head", **fields})


@pytest.mark.parametrize("architecture", ["bert", "gpt_neox"])
def test_given_constant_divides_output_matrix(tmp_path: Path, architecture: str):
    encoder = SparseEncoder.load(tiny_checkpoint(tmp_path / "source", architecture))
    before = output_layer(encoder.model)[0].detach().clone()
    pins, facts = check(settings(alpha=4), ModelFacts.of(encoder), {})
    made, summary = run(encoder, settings(alpha=4), {}, tmp_path)
    made.save(tmp_path / "model")
    loaded = SparseEncoder.load(tmp_path / "model")
    torch.testing.assert_close(output_layer(loaded.model)[0].detach(), before / 4)
    assert torch.equal(output_layer(encoder.model)[0], before)
    assert summary["mean_norm"] == pytest.approx(summary["mean_norm_before"] / 4)
    assert facts == ModelFacts.of(loaded)
    assert pins == {}
    assert head_norms(loaded).tied == (architecture == "bert")


@pytest.mark.long
def test_auto_corrects_head_that_is_five_times_too_large(tmp_path: Path, splade_tiny: Path):
    data = write_pairs(tmp_path, PAIRS * 3).model_dump(mode="json")
    encoder = SparseEncoder.load(splade_tiny)
    stage = settings(alpha="auto", data=data, pairs=12)
    assert run(encoder, stage, {}, tmp_path)[1]["alpha"] == 1
    scale_head(encoder, 1 / 5)
    made, summary = run(encoder, stage, {}, tmp_path)
    assert summary["alpha"] in (4, 8)
    assert len(summary["probes"]) == 5
    assert head_norms(made).mean_norm == pytest.approx(head_norms(encoder).mean_norm / summary["alpha"])


@pytest.mark.parametrize(
    "fields",
    [
        {"alpha": 0},
        {"alpha": "auto"},
        {"alpha": 2, "data": {"paths": ["x"], "kind": "pairs"}},
        {"alpha": "auto", "data": {"paths": ["x"], "kind": "texts"}},
    ],
)
def test_contradictory_settings_are_refused(fields: dict[str, Any]):
    with pytest.raises(ValidationError):
        settings(**fields)


def test_missing_pairs_are_refused(tmp_path: Path):
    facts = ModelFacts.of(SparseEncoder.load(tiny_checkpoint(tmp_path / "bert", "bert")))
    nowhere = {"paths": [str(tmp_path / "nowhere.jsonl")], "kind": "pairs"}
    with pytest.raises(ConfigError, match=r"data\.paths"):
        check(settings(alpha="auto", data=nowhere), facts, {})


def test_auto_is_refused_for_inference_free_queries(tmp_path: Path):
    encoder = SparseEncoder.load(tiny_checkpoint(tmp_path / "source", "bert"), query_encoder="idf")
    stage = settings(alpha="auto", data={"paths": [str(tmp_path / "pairs.jsonl")], "kind": "pairs"})
    with pytest.raises(ConfigError, match="alpha"):
        check(stage, ModelFacts.of(encoder), {})
