from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from lsr_prod.config.model import AdaptEncoderSettings
from lsr_prod.errors import ConfigError
from lsr_prod.model import SparseEncoder
from lsr_prod.training.stages.stage_facts import ModelFacts
from lsr_prod.training.stages.transformations import check_set_encoder as check
from lsr_prod.training.stages.transformations import set_encoder as run
from tests.model.tiny import tiny_checkpoint


def _stage(**fields: Any) -> AdaptEncoderSettings:
    return AdaptEncoderSettings(stage="set_encoder", **fields)


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> SparseEncoder:
    return SparseEncoder.load(tiny_checkpoint(tmp_path_factory.mktemp("llama") / "model", "llama"))


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> SparseEncoder:
    return SparseEncoder.load(tiny_checkpoint(tmp_path_factory.mktemp("bert") / "model", "bert"))


def test_card_changes_while_weights_stay(decoder: SparseEncoder, tmp_path: Path) -> None:
    stage = _stage(
        attention="echo", query_max_length=10, document_max_length=30, query_prompt="w9 ", casing="lowercase"
    )
    pins, facts = check(stage, ModelFacts.of(decoder), {})
    made, summary = run(decoder, stage, {}, tmp_path)
    assert pins == {}
    assert facts == replace(ModelFacts.of(made), letters=facts.letters), "facts of check equal facts of the result"
    card = made.card
    assert (card.attention, card.query_max_length, card.query_prompt, card.casing) == ("echo", 10, "w9 ", "lowercase")
    assert summary["attention"] == "echo"
    assert decoder.card.attention == "causal"
    assert decoder.tokenizer.tokenize("W2") == ["W2"] != made.tokenizer.tokenize("W2")
    made.save(tmp_path / "model")
    again = SparseEncoder.load(tmp_path / "model")
    assert again.card == card
    for (name, one), other in zip(again.model.state_dict().items(), decoder.model.state_dict().values(), strict=True):
        torch.testing.assert_close(one, other, msg=name)


def test_uncased_output_with_averaged_states(encoder: SparseEncoder, tmp_path: Path) -> None:
    stage = _stage(output_casing="uncased", pooled_states="mean", activation="l0")
    _, facts = check(stage, ModelFacts.of(encoder), {})
    assert facts.vocabulary_sha256 is None, "only known after the run"
    made, summary = run(encoder, stage, {}, tmp_path)
    assert summary["vocabulary_size"] == made.card.vocabulary_size <= facts.vocabulary_size
    assert (made.card.pooled_states, made.card.activation) == ("mean", "l0")
    assert not any(term != term.lower() for term in made.vocabulary)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"attention": "echo"}, "query_max_length: 64 is outside the lengths of this model; give 2 to 36 tokens"),
        ({"attention": "echo", "query_max_length": 37}, "query_max_length: 37 is outside the lengths"),
        ({"pooled_tokens": "all"}, "pooled_tokens: the first token of a LlamaForCausalLM does not represent"),
        ({"query_max_length": 73}, "query_max_length: 73 is outside the lengths of this model; give 2 to 72 tokens"),
    ],
)
def test_settings_that_do_not_fit_decoder_are_refused(
    decoder: SparseEncoder, fields: dict[str, Any], error: str
) -> None:
    with pytest.raises(ConfigError, match=error) as caught:
        check(_stage(**fields), ModelFacts.of(decoder), {})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("attention", ["causal", "echo"])
def test_decoder_attention_is_refused_for_encoder(encoder: SparseEncoder, attention: str) -> None:
    with pytest.raises(ConfigError, match=f"attention: BertForMaskedLM is not a decoder and cannot be {attention}"):
        check(_stage(attention=attention), ModelFacts.of(encoder), {})


@pytest.mark.parametrize(
    ("letters", "field", "error"),
    [
        ({"capital"}, {"output_casing": "uncased"}, "output_casing: no output term has a lowercase letter"),
        ({"lower"}, {"output_casing": "uncased"}, "output_casing: no output term is cased"),
        ({"capital"}, {"casing": "lowercase"}, "casing: the tokenizer has no token with a lowercase letter"),
    ],
)
def test_casing_without_lowercase_form_is_refused(
    encoder: SparseEncoder, letters: set[str], field: dict[str, Any], error: str
) -> None:
    facts = ModelFacts.of(encoder)
    assert facts.vocabulary_sha256 is not None
    with pytest.raises(ConfigError, match=error):
        check(_stage(**field), replace(facts, letters=(facts.vocabulary_sha256, frozenset(letters))), {})
    unknown = replace(facts, vocabulary_sha256=None, letters=("other", frozenset(letters)))
    check(_stage(**field), unknown, {})


def test_uncased_output_of_words_is_refused(encoder: SparseEncoder) -> None:
    facts = replace(ModelFacts.of(encoder), output_vocabulary="words")
    with pytest.raises(ConfigError, match="output_casing: it applies to output terms that are tokens"):
        check(_stage(output_casing="uncased"), facts, {})


def test_stage_without_any_field_is_refused() -> None:
    with pytest.raises(ValidationError, match="changes nothing"):
        _stage()


def test_inference_free_queries_refuse_prompt(encoder: SparseEncoder, tmp_path: Path) -> None:
    stage = _stage(query_encoder="idf")
    _, facts = check(stage, ModelFacts.of(encoder), {})
    made, summary = run(encoder, stage, {}, tmp_path)
    assert facts == ModelFacts.of(made)
    assert made.card.query_encoder == summary["query_encoder"] == "idf"
    with pytest.raises(ConfigError, match="query_prompt"):
        check(_stage(query_encoder="idf", query_prompt="w9 "), ModelFacts.of(encoder), {})
    with pytest.raises(ConfigError, match="query_prompt"):
        check(_stage(query_prompt="w9 "), facts, {})


def test_appended_tokens_lengthen_the_shortest_input(decoder: SparseEncoder) -> None:
    stage = _stage(pooled_tokens="appended", appended_tokens=4)
    _, facts = check(stage, ModelFacts.of(decoder), {})
    made, summary = run(decoder, stage)
    assert facts == replace(ModelFacts.of(made), letters=facts.letters)
    assert (facts.shortest_input, summary["appended_tokens"]) == (6, 4)
    _, again = check(_stage(activation="l0"), facts, {})
    assert again == facts
    for fields, error in (
        ({"appended_tokens": 5}, "appended_tokens: the tokenizer appends 4 tokens already"),
        ({"pooled_tokens": "not_bos"}, "appended_tokens: pooled_tokens is not_bos, with 4 appended tokens"),
        ({"pooled_states": "mean"}, "pooled_states: every appended token has a head of its own"),
        ({"query_max_length": 5}, "query_max_length: 5 is outside the lengths of this model; give 6 to 72 tokens"),
    ):
        with pytest.raises(ConfigError, match=error):
            check(_stage(**fields), facts, {})
    _, averaged = check(_stage(pooled_states="mean"), ModelFacts.of(decoder), {})
    with pytest.raises(ConfigError, match="pooled_states: every appended token"):
        check(stage, averaged, {})
