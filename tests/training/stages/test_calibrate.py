from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from lsr_prod.config.model import CalibrateSettings
from lsr_prod.errors import ConfigError
from lsr_prod.model import SparseEncoder
from lsr_prod.model.backbone import output_layer
from lsr_prod.training.stages.stage_facts import ModelFacts
from lsr_prod.training.stages.transformations import calibrate as run
from lsr_prod.training.stages.transformations import check_calibrate as check
from tests.model.tiny import WORDS, tiny_checkpoint
from tests.training.vocabulary.corpora import random_texts, write_texts


def settings(**fields: Any) -> CalibrateSettings:
    return CalibrateSettings.model_validate({"stage": "calibrate", **fields})


def test_given_constant_is_subtracted_from_bias(tmp_path: Path):
    encoder = SparseEncoder.load(tiny_checkpoint(tmp_path / "bert", "bert"))
    before = output_layer(encoder.model)[1].detach().clone()
    made, summary = run(encoder, settings(shift=5), {}, tmp_path)
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
    made, summary = run(encoder, stage, {}, tmp_path)
    assert set(pins) == {"data"}
    assert facts.has_bias
    assert ModelFacts.of(made).has_bias
    assert summary["activation_rate"] == pytest.approx(0.4, abs=1e-4)
    assert summary["held_out"] == pytest.approx(0.4, abs=0.01)
    assert abs(summary["held_out_before"] - 0.4) > 0.02
    made.save(tmp_path / "model")
    dense = SparseEncoder.load(tmp_path / "model").encode(random_texts(WORDS, 600, 12)[:200])
    assert len(dense.terms) / (200 * 97) == pytest.approx(0.4, abs=0.03)


@pytest.mark.parametrize("architecture", ["bert", "qwen3"])
def test_constant_per_term_leaves_no_term_active_in_every_text(tmp_path: Path, architecture: str):
    encoder = SparseEncoder.load(tiny_checkpoint(tmp_path / "source", architecture))
    if output_layer(encoder.model)[1] is not None:
        with torch.no_grad():  # as a decoder's frequent tokens: high in every text
            output_layer(encoder.model)[1].add_(torch.linspace(0, 20, 97))
    data = write_texts(tmp_path, random_texts(WORDS, 400, 12)).model_dump(mode="json")
    fields = {"activation_rate": 0.1, "data": data, "texts": 400, "max_length": 14}
    shares = {}
    for per in ("vocabulary", "term"):
        made, summary = run(encoder, settings(**fields, per=per), {}, tmp_path)
        assert summary["activation_rate"] == pytest.approx(0.1, abs=2e-3)
        dense = made.encode(random_texts(WORDS, 400, 12))
        shares[per] = torch.bincount(torch.from_numpy(dense.terms).long(), minlength=97) / 400
    assert float(shares["term"].max()) < 0.4
    assert int((shares["term"] > 0.01).sum()) > int((shares["vocabulary"] > 0.01).sum())
    if architecture == "bert":
        assert float(shares["vocabulary"].max()) > 0.9


def test_constant_per_term_is_that_of_the_row_of_the_head_where_outputs_are_uncased(tmp_path: Path):
    path = tiny_checkpoint(tmp_path / "source", "bert") / "tokenizer.json"
    path.write_text(path.read_text().replace('"W90"', '"W1"'))  # and there is w1
    encoder = SparseEncoder.load(path.parent, output_casing="uncased")
    data = write_texts(tmp_path, random_texts(WORDS, 200, 12)).model_dump(mode="json")
    stage = settings(activation_rate=0.1, data=data, texts=200, max_length=14, per="term")
    made, _ = run(encoder, stage, {}, tmp_path)
    whole, _ = run(encoder.with_card(output_casing="all"), stage, {}, tmp_path)
    assert made.card.output_casing == "uncased"
    assert made.card.vocabulary_size < whole.card.vocabulary_size
    assert torch.equal(output_layer(made.model)[1], output_layer(whole.model)[1])


def test_constant_per_term_needs_rate():
    with pytest.raises(ValidationError, match="per term needs activation_rate"):
        settings(shift=5, per="term")


def sparse_model(folder: Path, data: Path) -> tuple[SparseEncoder, dict[str, Any]]:
    """Return an encoder that activates fewer than 40 % of the terms, and settings that ask for 40 %."""
    encoder, _ = run(SparseEncoder.load(tiny_checkpoint(folder / "bert", "bert")), settings(shift=1), {}, folder)
    texts = write_texts(data, random_texts(WORDS, 200, 12)).model_dump(mode="json")
    return encoder, {"activation_rate": 0.4, "data": texts, "texts": 200, "max_length": 14}


def bias_of(encoder: SparseEncoder) -> torch.Tensor:
    bias = output_layer(encoder.model)[1]
    assert bias is not None
    return bias.detach()


def test_rate_that_would_raise_biases_is_refused(tmp_path: Path):
    encoder, fields = sparse_model(tmp_path, tmp_path)
    sentence = r"activation_rate: the model activates 0\.\d+ of the pairs, less than 0\.4, so the constant would be -"
    with pytest.raises(ConfigError, match=sentence) as caught:
        run(encoder, settings(**fields), {}, tmp_path)
    assert "negative_shift" in caught.value.remedy


def test_rate_that_would_raise_biases_leaves_them_with_zero(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    encoder, fields = sparse_model(tmp_path, tmp_path)
    made, summary = run(encoder, settings(**fields, negative_shift="zero"), {}, tmp_path)
    assert torch.equal(bias_of(made), bias_of(encoder))
    assert summary["shift"] == 0
    assert summary["activation_rate"] < 0.4
    assert summary["held_out"] == summary["held_out_before"]
    assert [record.levelname for record in caplog.records if "biases are unchanged" in record.getMessage()] == [
        "WARNING"
    ]


def test_biases_are_raised_if_allowed(tmp_path: Path):
    encoder, fields = sparse_model(tmp_path, tmp_path)
    made, summary = run(encoder, settings(**fields, negative_shift="allow"), {}, tmp_path)
    assert summary["shift"] < 0
    assert summary["activation_rate"] == pytest.approx(0.4, abs=1e-3)
    torch.testing.assert_close(bias_of(made), bias_of(encoder) - summary["shift"])


@pytest.mark.parametrize(
    "fields",
    [{}, {"shift": -2}, {"shift": 1, "activation_rate": 0.3}, {"activation_rate": 0.3}, {"activation_rate": 1.5}],
    ids=["none", "raises biases", "both", "no data", "not a share"],
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
        check(settings(activation_rate=0.3, data=write_texts(tmp_path, ["w1"]), max_length=5000), facts, {})
