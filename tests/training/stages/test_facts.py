"""Facts of the model of a training chain."""

from pathlib import Path

import pytest

from lsr_prod.errors import ConfigError
from lsr_prod.model import SparseEncoder
from lsr_prod.training.stages.stage_facts import TRANSFER_FILE, ModelFacts, check_length
from tests.model.tiny import tiny_checkpoint
from tests.training.texts import causal_start, worded_start


def test_facts_of_masked_model(tmp_path: Path) -> None:
    folder = tiny_checkpoint(tmp_path / "bert", "bert")
    encoder = SparseEncoder.load(folder)
    facts = ModelFacts.of(encoder, folder)
    assert (facts.architecture, facts.kind, facts.attention) == ("BertForMaskedLM", "masked", "bidirectional")
    assert (facts.vocabulary_size, facts.vocabulary_sha256) == (97, encoder.card.vocabulary_sha256)
    assert (facts.hidden_size, facts.has_bias, facts.tied) == (32, True, True)
    assert (facts.output_vocabulary, facts.casing) == ("tokenizer", "none")
    assert (facts.shortest_input, facts.longest_input) == (3, 72)
    assert (facts.query_max_length, facts.document_max_length) == (64, 72)
    assert facts.roles == {"bos", "eos", "unk", "sep", "pad", "cls", "mask"}
    assert facts.linear_modules == {"query", "key", "value", "dense"}
    assert not facts.transferred
    (folder / TRANSFER_FILE).write_text('{"new": []}')
    assert ModelFacts.of(encoder, folder).transferred
    assert not ModelFacts.of(encoder).transferred


def test_facts_of_decoder_and_of_head_of_words(tmp_path: Path) -> None:
    causal = ModelFacts.of(SparseEncoder.load(causal_start(tmp_path / "llama")))
    assert (causal.kind, causal.has_bias, causal.tied) == ("causal", False, True)
    assert "mask" not in causal.roles
    words = ModelFacts.of(SparseEncoder.load(worded_start(tmp_path / "words")))
    assert (words.output_vocabulary, words.vocabulary_size, words.tied) == ("words", 92, False)


@pytest.mark.parametrize(("length", "possible"), [(None, True), (3, True), (72, True), (2, False), (73, False)])
def test_lengths_are_compared_with_model(tmp_path: Path, length: int | None, possible: bool) -> None:
    facts = ModelFacts.of(SparseEncoder.load(tiny_checkpoint(tmp_path / "bert", "bert")))
    if possible:
        check_length("max_length", length, facts)
        return
    with pytest.raises(ConfigError, match=r"^max_length: .* give 3 to 72 tokens"):
        check_length("max_length", length, facts)
