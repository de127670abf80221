from pathlib import Path

import numpy as np
import pytest
import torch

from lsr_prod.config.model import ExpandVocabularySettings
from lsr_prod.errors import ConfigError
from lsr_prod.model import SparseEncoder
from lsr_prod.model.backbone import output_layer
from lsr_prod.training.stages.stage_facts import ModelFacts
from lsr_prod.training.stages.vocabulary import check_expand as check
from lsr_prod.training.stages.vocabulary import expand
from lsr_prod.training.stages.vocabulary import expand_vocabulary as run
from tests.model.tiny import tiny_checkpoint
from tests.training.vocabulary.corpora import write_texts

TEXTS = ["naïve transformers retrieve sparse vectors", "sparse transformers, sparse vectors"] * 2


def test_rows_and_biases_are_means_over_sub_tokens(splade_tiny: Path):
    encoder = SparseEncoder.load(splade_tiny)
    words = ["sparse", "transformers", "splade", "splades"]
    expanded, _ = expand(encoder, words, drawn=False)
    matrix, bias = output_layer(encoder.model)
    new_matrix, new_bias = output_layer(expanded.model)
    for row, word in enumerate(words):
        pieces = encoder.tokenizer(word, add_special_tokens=False)["input_ids"]
        torch.testing.assert_close(new_matrix[row], matrix[pieces].mean(dim=0))
        torch.testing.assert_close(new_bias[row], bias[pieces].mean())
    assert expanded.vocabulary == words
    # A word that is one token has the weight of this token.
    before = dict(zip(*_row(encoder), strict=True))
    after = dict(zip(*_row(expanded), strict=True))
    assert after["sparse"] == pytest.approx(before["sparse"], abs=1e-5)


def _row(encoder: SparseEncoder) -> tuple[list[str], list[float]]:
    batch = encoder.encode(["sparse retrieval"])
    return [encoder.vocabulary[term] for term in batch.terms], batch.weights.tolist()


def test_random_rows_have_scale_of_old_rows_and_no_bias(splade_tiny: Path):
    encoder = SparseEncoder.load(splade_tiny)
    words = [f"word{i}" for i in range(300)]
    first, again = (expand(encoder, words, drawn=True, seed=3)[0] for _ in range(2))
    rows, bias = (tensor.detach() for tensor in output_layer(first.model))
    assert torch.equal(rows, output_layer(again.model)[0])
    assert float(rows.std()) == pytest.approx(float(output_layer(encoder.model)[0].detach().std()), rel=0.05)
    assert not bias.any()


def test_word_without_tokens_is_refused(splade_tiny: Path):
    encoder = SparseEncoder.load(splade_tiny)
    with pytest.raises(ValueError, match=r"turns the word '\u0301'"):
        expand(encoder, ["sparse", "\u0301"], drawn=False)


@pytest.mark.long
@pytest.mark.usefixtures("ray_local")
def test_words_of_corpus_become_output_terms_after_save_and_load(tmp_path: Path, splade_tiny: Path):
    data = write_texts(tmp_path, TEXTS)
    stage = ExpandVocabularySettings.model_validate(
        {"stage": "expand_vocabulary", "data": data.model_dump(mode="json"), "size": 5, "min_count": 2}
    )
    source = SparseEncoder.load(splade_tiny)
    pins, facts = check(stage, ModelFacts.of(source), {})
    assert set(pins) == {"data"}
    encoder, summary = run(source, stage, {}, tmp_path)
    encoder.save(tmp_path / "model")
    loaded = SparseEncoder.load(tmp_path / "model")
    assert loaded.vocabulary == ["sparse", "transformers", "vectors", ",", "naive"]
    assert summary["least_count"] == 2
    assert summary["vocabulary_size"] == loaded.card.vocabulary_size == 5
    real = ModelFacts.of(loaded)
    for name in ("has_bias", "tied", "output_vocabulary", "vocabulary_size"):
        assert getattr(facts, name) == getattr(real, name)
    batch = loaded.encode(["sparse vectors"])
    assert {loaded.vocabulary[term] for term in batch.terms} >= {"sparse", "vectors"}
    assert np.isfinite(batch.weights).all()
    with pytest.raises(ConfigError, match="stage: the model's output terms are words already"):
        check(stage, real, {})


def test_head_without_bias_stays_without_bias(tmp_path: Path):
    encoder = SparseEncoder.load(tiny_checkpoint(tmp_path / "llama", "llama"))
    expanded, pieces = expand(encoder, ["w1", "w3"], drawn=False)
    assert output_layer(expanded.model)[1] is None
    assert pieces == 1.0
