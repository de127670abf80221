import json
from pathlib import Path

import numpy as np
import pytest
import torch

from lsr_prod.errors import ConfigError
from lsr_prod.model import SparseEncoder
from lsr_prod.model.backbone import head_input, hidden_states, output_layer
from lsr_prod_contrib.vocabularies.casing_matrix import CasingMatrix, casing_matrix
from tests.model.tiny import SPECIAL, VOCABULARY, tiny_checkpoint

TEXTS = ["w1 W2 w3", "W4", "w5 w7 W8 W10 unheard"]


def plain_matrix(encoder: SparseEncoder, texts: list[str]) -> np.ndarray:
    """Count as the authors' ``compute_confusion_matrix``: one token and one term at a time, before pooling."""
    counts = np.zeros((2, 3), dtype=int)
    for text in texts:
        ids = encoder.tokenizer(text, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            states = head_input(encoder.model, hidden_states(encoder.model, ids, torch.ones_like(ids)))[0]
            matrix, bias = output_layer(encoder.model)
            logits = states @ matrix.T + bias
        for token, of_token in zip(ids[0].tolist(), logits, strict=True):
            if VOCABULARY[token] in SPECIAL:
                continue
            for term in range(len(VOCABULARY)):
                if of_token[term] > 0:
                    counts[_class(token), _class(term)] += 1
    return counts


def _class(token: int) -> int:
    return 2 if VOCABULARY[token] in SPECIAL else int(VOCABULARY[token][0] == "W")


def test_every_active_pair_of_token_and_term_is_counted(tmp_path: Path):
    encoder = SparseEncoder.load(tiny_checkpoint(tmp_path / "bert", "bert"))
    found = casing_matrix(encoder, TEXTS)
    np.testing.assert_array_equal(found.counts, plain_matrix(encoder, TEXTS))
    assert found.counts.sum() > len(encoder.encode(TEXTS, "query").terms)  # a term is counted for each of its tokens
    found.save(tmp_path / "casing.json")
    saved = json.loads((tmp_path / "casing.json").read_text())
    assert saved["counts"]["cased"]["uncased"] == found.counts[1, 0]
    assert saved["texts"] == 3


def test_lowercasing_tokenizer_has_no_cased_input(tmp_path: Path):
    encoder = SparseEncoder.load(tiny_checkpoint(tmp_path / "bert", "bert"), casing="lowercase")
    assert casing_matrix(encoder, TEXTS).counts[1].sum() == 0


def test_counts_do_not_depend_on_padding_or_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    encoder = SparseEncoder.load(tiny_checkpoint(tmp_path / "bert", "bert"))
    counts = casing_matrix(encoder, TEXTS).counts
    np.testing.assert_array_equal(sum(casing_matrix(encoder, [text]).counts for text in TEXTS), counts)
    monkeypatch.setattr("lsr_prod_contrib.vocabularies.casing_matrix._LOGITS", 2 * len(VOCABULARY))
    np.testing.assert_array_equal(casing_matrix(encoder, TEXTS).counts, counts)


@pytest.mark.parametrize("attention", ["causal", "echo"])
def test_start_token_of_decoder_is_skipped(tmp_path: Path, attention: str):
    folder = tiny_checkpoint(tmp_path / "llama", "llama")
    encoder = SparseEncoder.load(folder, attention=attention, query_max_length=20, document_max_length=30)
    (counts,) = [casing_matrix(encoder, ["w1"]).counts]
    assert counts[0].sum() == len(encoder.encode(["w1"], "query").terms)  # the only pooled token
    assert counts[1].sum() == 0


def test_model_with_averaged_states_is_refused(tmp_path: Path):
    encoder = SparseEncoder.load(tiny_checkpoint(tmp_path / "bert", "bert"), pooled_states="mean")
    with pytest.raises(ConfigError, match="model: it averages its hidden states"):
        casing_matrix(encoder, TEXTS)


def test_picture_is_drawn(tmp_path: Path):
    pytest.importorskip("matplotlib")
    CasingMatrix(np.array([[120_000, 12, 0], [900, 40, 0]]), 100).draw(tmp_path / "casing.png", "none")
    assert (tmp_path / "casing.png").read_bytes().startswith(b"\x89PNG")


def test_model_with_uncased_output_is_refused(tmp_path: Path):
    encoder = SparseEncoder.load(tiny_checkpoint(tmp_path / "bert", "bert"), output_casing="uncased")
    with pytest.raises(ConfigError, match="model: its output is always uncased"):
        casing_matrix(encoder, TEXTS)
