import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lsr_prod.errors import ArtifactError, ConfigError
from lsr_prod.model import SparseEncoder, model_digest
from lsr_prod.model.backbone import output_layer
from lsr_prod.model.output_layer import (
    OUTPUT_LAYER_FILE,
    OUTPUT_VOCABULARY_FILE,
    add_output_bias,
    has_own_output_layer,
    load_output_layer,
    replace_output_layer,
    save_output_layer,
)
from lsr_prod.storage.formats.digests import digest_json
from tests.model.tiny import ARCHITECTURES, CAUSAL, tiny_checkpoint, tiny_model

WORDS = [f"word{i}" for i in range(150)]
TEXTS = ["w1 W2 w3", "w5", "W0 w1 w7 w9"]


def _with_words(folder: Path, *, bias: bool = True) -> SparseEncoder:
    encoder = SparseEncoder.load(folder)
    width = output_layer(encoder.model)[0].shape[1]
    generator = torch.Generator().manual_seed(3)
    weight = torch.randn(len(WORDS), width, generator=generator)
    replace_output_layer(encoder.model, weight, torch.randn(len(WORDS), generator=generator) if bias else None)
    card = replace(
        encoder.card,
        vocabulary_size=len(WORDS),
        vocabulary_sha256=digest_json(WORDS),
        output_vocabulary="words",
    )
    return SparseEncoder(encoder.model, encoder.tokenizer, card, WORDS).eval()


@pytest.mark.parametrize("architecture", [*ARCHITECTURES, *CAUSAL])
def test_head_of_words_is_equal_after_save_and_load(tmp_path: Path, architecture: str) -> None:
    encoder = _with_words(tiny_checkpoint(tmp_path / "checkpoint", architecture), bias=architecture != "bert")
    before = encoder.encode(TEXTS)
    digest = encoder.save(tmp_path / "model")
    again = SparseEncoder.load(tmp_path / "model")
    assert again.vocabulary == WORDS
    assert again.card == encoder.card
    after = again.encode(TEXTS)
    torch.testing.assert_close(torch.from_numpy(after.weights), torch.from_numpy(before.weights))
    assert (after.terms == before.terms).all()
    assert again.save(tmp_path / "again") == digest == model_digest(tmp_path / "model")
    assert not (tmp_path / "model" / "modules.json").exists(), "sentence-transformers would make other vectors"
    names = {name for name, p in again.model.named_parameters() if p.shape[0] == encoder.tokenizer.vocab_size}
    assert len(names) == 1, f"only the input embeddings are left of the tokenizer's vocabulary, not {names}"


@pytest.mark.parametrize("architecture", ["bert", "roberta", "llama", "gpt_neox"])
def test_every_parameter_gets_gradient(tmp_path: Path, architecture: str) -> None:
    encoder = _with_words(tiny_checkpoint(tmp_path / "checkpoint", architecture))
    encoder.save(tmp_path / "model")
    for one in (encoder, SparseEncoder.load(tmp_path / "model")):
        ids = torch.tensor([[2, 9, 11, 12, 3]])
        one(ids, torch.ones_like(ids)).sum().backward()
        without = [name for name, parameter in one.model.named_parameters() if parameter.grad is None]
        assert not without, "a worker that waits for their gradient would wait for ever"


@pytest.mark.parametrize("tied", [True, False])
def test_added_bias_keeps_output_matrix(tmp_path: Path, tied: bool) -> None:
    checkpoint = tiny_checkpoint(tmp_path / "checkpoint", "llama" if tied else "qwen3")
    encoder = SparseEncoder.load(checkpoint)
    add_output_bias(encoder.model, torch.arange(97.0) / 97)
    weight, bias = output_layer(encoder.model)
    assert (weight is encoder.model.get_input_embeddings().weight) == tied
    with pytest.raises(ConfigError, match="has a bias already"):
        add_output_bias(encoder.model, torch.zeros(97))
    encoder.save(tmp_path / "model")
    again = SparseEncoder.load(tmp_path / "model")
    assert (output_layer(again.model)[0] is again.model.get_input_embeddings().weight) == tied
    for one, other in zip(output_layer(again.model), (weight, bias), strict=True):
        torch.testing.assert_close(one, other)
    assert (again.encode(TEXTS).terms == encoder.encode(TEXTS).terms).all()
    assert again.encode(TEXTS).terms.shape != SparseEncoder.load(checkpoint).encode(TEXTS).terms.shape


def test_rows_or_biases_of_another_size_are_refused() -> None:
    model = tiny_model("albert")
    with pytest.raises(ConfigError, match="rows have 32 values; this model's head needs 16"):
        replace_output_layer(model, torch.zeros(150, 32), None)
    with pytest.raises(ConfigError, match="150 rows have 149 biases"):
        replace_output_layer(model, torch.zeros(150, 16), torch.zeros(149))
    with pytest.raises(ConfigError, match="97 rows have 3 biases"):
        add_output_bias(tiny_model("llama"), torch.zeros(3))
    assert not has_own_output_layer(model)


def test_terms_that_do_not_match_head_are_refused(tmp_path: Path) -> None:
    encoder = _with_words(tiny_checkpoint(tmp_path / "checkpoint", "bert"))
    with pytest.raises(ConfigError, match="150 outputs for 149 terms"):
        SparseEncoder(encoder.model, encoder.tokenizer, replace(encoder.card, vocabulary_size=149), WORDS[:-1])
    with pytest.raises(ConfigError, match="output vocabulary is words"):
        SparseEncoder(encoder.model, encoder.tokenizer, encoder.card)
    plain = SparseEncoder.load(tmp_path / "checkpoint")
    with pytest.raises(ConfigError, match="output vocabulary is tokenizer"):
        SparseEncoder(plain.model, plain.tokenizer, plain.card, WORDS)
    encoder.save(tmp_path / "model")
    path = tmp_path / "model" / OUTPUT_VOCABULARY_FILE
    path.write_text(path.read_text().replace('"word7"', '"word8"'))
    with pytest.raises(ConfigError, match="does not match the output vocabulary"):
        SparseEncoder.load(tmp_path / "model")
    path.write_text("[1]")
    with pytest.raises(ArtifactError, match="not a list of terms"):
        SparseEncoder.load(tmp_path / "model")
    path.unlink()
    with pytest.raises(ArtifactError, match="missing"):
        SparseEncoder.load(tmp_path / "model")


def test_clone_keeps_tied_weights(tmp_path: Path) -> None:
    model = tiny_model("llama")
    add_output_bias(model, torch.ones(97))
    other = copy.deepcopy(model)
    assert other.get_output_embeddings().weight is other.get_input_embeddings().weight
    other.config.save_pretrained(tmp_path)
    save_output_layer(tmp_path, other)
    fresh = tiny_model("llama")
    load_output_layer(tmp_path, fresh)
    torch.testing.assert_close(fresh.get_output_embeddings().bias, torch.ones(97))
    assert (tmp_path / OUTPUT_LAYER_FILE).stat().st_size < 1000, "the matrix is not written twice"
