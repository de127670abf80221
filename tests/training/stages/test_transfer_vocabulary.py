import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from transformers import BertConfig, BertModel

from lsr_prod.config.model import AdaptEncoderSettings, TransferVocabularySettings
from lsr_prod.errors import ConfigError
from lsr_prod.inference.terms.words import fragmentation
from lsr_prod.model import SparseEncoder
from lsr_prod.model.backbone import output_layer
from lsr_prod.training.stages.stage_facts import TRANSFER_FILE, ModelFacts
from lsr_prod.training.stages.transformations import check_set_encoder
from lsr_prod.training.stages.vocabulary import check_transfer as check
from lsr_prod.training.stages.vocabulary import transfer_vocabulary as run
from lsr_prod.training.vocabulary.target import read_target, target_terms
from lsr_prod.training.vocabulary.transfer import transfer_bias, unigram_bias
from tests.model.tiny import VOCABULARY, tiny_checkpoint, tiny_tokenizer
from tests.training.vocabulary.corpora import write_texts
from tests.training.vocabulary.test_sparsemax import plain_sparsemax
from tests.training.vocabulary.test_transfer import other_tokenizer, weights

TERMS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "w1", "w3", "W4", "new", "other"]
NEW = [8, 9]


def settings(**fields: Any) -> TransferVocabularySettings:
    return TransferVocabularySettings.model_validate({"stage": "transfer_vocabulary", **fields})


@pytest.fixture
def source(tmp_path: Path) -> SparseEncoder:
    return SparseEncoder.load(tiny_checkpoint(tmp_path / "source", "bert"))


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """A tokenizer and a model with its tokens but without a head, like MiniLM."""
    other_tokenizer(TERMS, lowercase=True).save_pretrained(tmp_path / "target")
    with torch.random.fork_rng():
        torch.manual_seed(1)
        config = BertConfig(
            vocab_size=len(TERMS), hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8
        )
        BertModel(config).save_pretrained(tmp_path / "target")
    return tmp_path / "target"


def moved(
    source: SparseEncoder, stage: TransferVocabularySettings, scratch: Path
) -> tuple[SparseEncoder, dict[str, Any]]:
    pins, facts = check(stage, ModelFacts.of(source), {})
    assert all(len(digest) == 64 for digest in pins.values())
    encoder, summary = run(source, stage, {}, scratch)
    real = ModelFacts.of(encoder)
    for name in (
        "has_bias",
        "tied",
        "output_vocabulary",
        "casing",
        "roles",
        "shortest_input",
        "longest_input",
        "token_head",
    ):
        assert getattr(facts, name) == getattr(real, name), name
    assert facts.vocabulary_size >= real.vocabulary_size
    assert facts.vocabulary_sha256 in (None, real.vocabulary_sha256)
    encoder.save(scratch / "model")
    return SparseEncoder.load(scratch / "model"), summary


def test_semantic_rows_and_bias_of_rows(source: SparseEncoder, target: Path, tmp_path: Path):
    encoder, summary = moved(
        source, settings(target=str(target), initialization="semantic", bias="rows"), tmp_path / "target"
    )
    space = BertModel.from_pretrained(target).get_input_embeddings().weight.detach().numpy().astype(np.float64)
    space /= np.maximum(np.linalg.norm(space, axis=1, keepdims=True), 1e-12)  # the row of the padding token is zero
    overlap = [row for row in range(len(TERMS)) if row not in NEW]
    names = {"[PAD]": "<pad>", "[UNK]": "<unk>", "[CLS]": "<s>", "[SEP]": "</s>", "[MASK]": "<mask>"}
    old = [VOCABULARY.index(names.get(TERMS[row], TERMS[row])) for row in overlap]
    matrix, bias = (tensor.detach().numpy() for tensor in output_layer(source.model))
    new_matrix, new_bias = (tensor.detach().numpy() for tensor in output_layer(encoder.model))
    np.testing.assert_array_equal(new_matrix[overlap], matrix[old])
    for row in NEW:
        alpha = plain_sparsemax(space[overlap] @ space[row])
        np.testing.assert_allclose(new_matrix[row], alpha @ matrix[old], atol=1e-5)
        np.testing.assert_allclose(new_bias[row], alpha @ bias[old], atol=1e-5)
    assert summary["overlap"] == 0.8
    assert json.loads((tmp_path / "target" / TRANSFER_FILE).read_text()) == {"new": NEW}


def test_bias_of_target_with_head(source: SparseEncoder, tmp_path: Path):
    target = SparseEncoder.load(tiny_checkpoint(tmp_path / "target", "distilbert"))
    stage = settings(target=str(tmp_path / "target"), initialization="mean")
    (tmp_path / "out").mkdir()
    encoder, _ = moved(source, stage, tmp_path / "out")
    expected = transfer_bias(output_layer(source.model)[1], output_layer(target.model)[1])
    torch.testing.assert_close(output_layer(encoder.model)[1].detach(), expected)
    assert weights(encoder, ["w1"]) != weights(source, ["w1"])


@pytest.mark.parametrize("architecture", ["bert", "llama"])
def test_bias_of_token_counts(architecture: str, target: Path, tmp_path: Path):
    source = SparseEncoder.load(tiny_checkpoint(tmp_path / "of counts", architecture))
    data = write_texts(tmp_path, ["w1 w1 W4", "w3 new w1"])
    stage = settings(
        target=str(target), initialization="random_new", bias="unigrams", unigrams=data.model_dump(mode="json")
    )
    encoder, summary = moved(source, stage, tmp_path / "target")
    created = unigram_bias([0, 1, 0, 0, 0, 3, 1, 0, 1, 0])  # the target lowercases, so W4 is unknown
    old = output_layer(source.model)[1]
    expected = created if old is None else transfer_bias(old, created)
    torch.testing.assert_close(output_layer(encoder.model)[1].detach(), expected)
    assert summary["fragmentation"] == 1.0


def test_transfer_of_head_keeps_tokenizer(source: SparseEncoder, target: Path, tmp_path: Path):
    stage = settings(target=str(target), initialization="semantic", bias="rows", parts="head")
    encoder, _ = moved(source, stage, tmp_path)
    assert encoder.vocabulary == TERMS
    assert len(encoder.tokenizer) == len(VOCABULARY)
    assert not (tmp_path / TRANSFER_FILE).exists()
    found, before = weights(encoder, ["w1 W4"])[0], weights(source, ["w1 W4"])[0]
    kept = ("w1", "w3", "W4")
    assert {term: found.get(term, 0.0) for term in kept} == pytest.approx(
        {term: before.get(term, 0.0) for term in kept}, abs=1e-5
    )


@pytest.mark.parametrize("model", ["word_piece", "bpe"])
def test_domain_tokenizer_is_trained_on_texts(source: SparseEncoder, tmp_path: Path, model: str):
    data = write_texts(tmp_path, ["w1 W2 w3 alpha beta", "W4 w5 alpha"] * 20)
    stage = settings(
        train_tokenizer={"data": data.model_dump(mode="json"), "model": model, "size": 320},
        initialization="subtoken",
        bias="unigrams",
    )
    encoder, summary = moved(source, stage, tmp_path)
    assert encoder.card.casing == "lowercase"
    assert encoder.card.vocabulary_size == summary["vocabulary_size"] <= 320
    assert summary["fragmentation"] > 0
    assert summary["old_fragmentation"] == 1.0
    assert len(encoder.encode(["alpha W1"]).terms)


def test_random_rows_depend_on_seed(source: SparseEncoder, target: Path, tmp_path: Path):
    data = write_texts(tmp_path, ["w1"]).model_dump(mode="json")
    rows = []
    for strategy, seed in (("random_new", 0), ("random_new", 1), ("random_all", 0)):
        stage = settings(target=str(target), initialization=strategy, bias="unigrams", unigrams=data, seed=seed)
        encoder, _ = run(source, stage, {}, tmp_path)
        rows.append(output_layer(encoder.model)[0].detach())
    old = [row for row in range(len(TERMS)) if row not in NEW]
    assert torch.equal(rows[0][old], rows[1][old])
    assert not torch.equal(rows[0][NEW], rows[1][NEW])
    assert not torch.equal(rows[0][old], rows[2][old])


def test_fragmentation_is_tokens_per_word():
    assert fragmentation(["w1 W2 w3", "w5"], tiny_tokenizer()) == 1.0


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"initialization": "subtoken"}, "give either target or train_tokenizer"),
        ({"target": "x", "initialization": "subtoken", "bias": "unigrams"}, "give unigrams"),
        ({"target": "x", "initialization": "random_new", "bias": "rows"}, "random rows give no bias"),
        (
            {"target": "x", "target_embeddings": "y", "initialization": "mean", "bias": "rows"},
            "target_embeddings has no effect without initialization semantic",
        ),
        (
            {"train_tokenizer": {"data": {"paths": ["x"], "kind": "texts"}}, "initialization": "semantic"},
            "use initialization subtoken",
        ),
        ({"train_tokenizer": {"data": {"paths": ["x"], "kind": "pairs"}}, "initialization": "mean"}, "to be texts"),
    ],
)
def test_contradictory_settings_are_refused(fields: dict[str, Any], line: str):
    with pytest.raises(ValidationError, match=line):
        settings(**fields)


def test_settings_that_do_not_fit_are_reported_in_one_line(source: SparseEncoder, target: Path, tmp_path: Path):
    facts = ModelFacts.of(source)
    other_tokenizer(TERMS).save_pretrained(tmp_path / "bare")
    other_tokenizer(TERMS, padding=False).save_pretrained(tmp_path / "unpadded")
    other_tokenizer([*TERMS, "more"]).save_pretrained(tmp_path / "more")
    bare, semantic = str(tmp_path / "bare"), {"initialization": "semantic", "bias": "rows"}
    lines = {
        "target: .*nowhere has no tokenizer.json; name a model directory": {"target": "/nowhere", **semantic},
        "target_embeddings: initialization semantic needs a model with the target's tokens": {
            "target": bare,
            **semantic,
        },
        "target_embeddings: .* lacks 1 of the target's tokens, 'more' among them": {
            "target": str(tmp_path / "more"),
            "target_embeddings": str(target),
            **semantic,
        },
        "target_embeddings: /nowhere has no config.json": {"target": bare, "target_embeddings": "/nowhere", **semantic},
        "target: its tokenizer has no padding token": {
            "target": str(tmp_path / "unpadded"),
            "initialization": "mean",
            "bias": "rows",
        },
        "bias: .* has no head with a bias; take unigrams or rows": {"target": str(target), "initialization": "mean"},
        "bias: the head of BertForMaskedLM has a bias": {"target": bare, "initialization": "mean", "bias": "none"},
    }
    for line, fields in lines.items():
        with pytest.raises(ConfigError, match=line):
            check(settings(**fields), facts, {})
    causal = ModelFacts.of(SparseEncoder.load(tiny_checkpoint(tmp_path / "llama", "llama")))
    with pytest.raises(ConfigError, match="bias: the head of LlamaForCausalLM has no bias; take none, or unigrams"):
        check(settings(target=bare, initialization="mean", bias="rows"), causal, {})


def test_transfer_resets_uncased_output(source: SparseEncoder, target: Path, tmp_path: Path):
    stage = settings(target=str(target), initialization="subtoken", bias="rows")
    for name in ("plain", "uncased"):
        (tmp_path / name).mkdir()
    plain, _ = moved(source, stage, tmp_path / "plain")
    uncased, _ = moved(source.with_card(output_casing="uncased"), stage, tmp_path / "uncased")
    assert (uncased.card.output_casing, uncased.vocabulary) == ("all", plain.vocabulary)
    assert torch.equal(output_layer(uncased.model)[0], output_layer(plain.model)[0])


def test_missing_unigram_texts_are_refused_by_check(source: SparseEncoder, target: Path):
    nowhere = {"paths": ["/nowhere/*.jsonl"], "kind": "texts"}
    stage = settings(target=str(target), initialization="mean", bias="rows", unigrams=nowhere)
    with pytest.raises(ConfigError, match="paths: there is nothing at"):
        check(stage, ModelFacts.of(source), {})


def test_inference_free_queries_are_refused_for_head_of_tokens(source: SparseEncoder, tmp_path: Path):
    other_tokenizer([*TERMS, *(f"##{i}" for i in range(9))]).save_pretrained(tmp_path / "pieces")
    stage = settings(target=str(tmp_path / "pieces"), initialization="mean", bias="rows", parts="head")
    facts = ModelFacts.of(source)
    _, after = check(stage, facts, {})
    encoder, _ = run(source, stage, {}, tmp_path)
    assert ModelFacts.of(encoder).token_head
    assert after.token_head
    line = "the output terms are tokens of another tokenizer"
    idf = AdaptEncoderSettings(stage="set_encoder", query_encoder="idf")
    for refused in (
        lambda: check(stage, replace(facts, query_encoder="idf"), {}),
        lambda: check_set_encoder(idf, after, {}),
        lambda: encoder.with_card(query_encoder="idf"),
    ):
        with pytest.raises(ConfigError, match=line):
            refused()


def test_target_tokenizer_is_read_from_its_own_files(tmp_path: Path):
    other_tokenizer(TERMS).save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "qwen2"}')
    assert target_terms(read_target(str(tmp_path))) == TERMS
    assert type(read_target(str(tmp_path))).__name__ != "Qwen2Tokenizer"


def test_appended_tokens_are_those_of_the_new_tokenizer(source: SparseEncoder, target: Path, tmp_path: Path):
    appended = source.with_card(pooled_tokens="appended", appended_tokens=3)
    encoder, _ = moved(appended, settings(target=str(target), initialization="mean", bias="rows"), tmp_path / "target")
    end = TERMS.index("[SEP]")
    assert encoder.tokenizer("w1")["input_ids"][-4:] == [end] * 4
    assert encoder.heads is not None
    assert len(encoder.heads.heads) == len(TERMS)
    assert len(encoder.encode(["w1"]).terms)


def test_mpnet_is_not_moved_to_vocabulary_with_other_padding_id(target: Path, tmp_path: Path):
    facts = ModelFacts.of(SparseEncoder.load(tiny_checkpoint(tmp_path / "mpnet", "mpnet")))
    rows = {"initialization": "mean", "bias": "rows"}
    other_tokenizer(["[UNK]", "[PAD]", *TERMS[2:]]).save_pretrained(tmp_path / "second")
    check(settings(target=str(tmp_path / "second"), **rows), facts, {})
    check(settings(target=str(target), parts="head", **rows), facts, {})
    data = write_texts(tmp_path, ["w1"]).model_dump(mode="json")
    for name, value in (("target", str(target)), ("train_tokenizer", {"data": data})):
        with pytest.raises(ConfigError, match=rf"{name}: MPNet takes the token of id 1 for padding, .* has id 0"):
            check(settings(**{name: value}, **rows), facts, {})
