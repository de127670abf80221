import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lsr_prod.config import ExportSettings
from lsr_prod.inference import BundleEncoder
from lsr_prod.model import SparseEncoder
from lsr_prod.model.backbone import head_input, hidden_states, output_layer
from lsr_prod.model.export import export_bundle
from lsr_prod.training.vocabulary.head import activation_rate, pooled_maxima, shift_bias, shift_for_rate
from tests.model.tiny import WORDS, tiny_checkpoint
from tests.training.vocabulary.corpora import random_texts

RATES = (0.2, 0.3, 0.4, 0.5)


def test_shift_equals_value_by_hand():
    # Two of five maxima stay above 0: c is between 4 and 3.
    assert shift_for_rate(np.array([5.0, 1.0, 3.0, 2.0, 4.0], np.float32), 0.4) == 3.5


@given(st.integers(0, 10_000), st.integers(10, 300), st.floats(0.05, 0.95))
def test_shift_is_quantile_of_maxima(seed: int, n: int, rate: float):
    maxima = np.random.default_rng(seed).normal(size=(n, 3)).astype(np.float32)
    shift = shift_for_rate(maxima, rate)
    assert (maxima - shift > 0).mean() == pytest.approx(rate, abs=1 / maxima.size)


def plain_maxima(encoder: SparseEncoder, text: str, length: int) -> np.ndarray:
    """Compute max_j (h_j W^T + b) without tiles."""
    ids = encoder.tokenizer(text, truncation=True, max_length=length, return_tensors="pt")["input_ids"]
    mask = torch.ones_like(ids)
    with torch.no_grad():
        states = head_input(encoder.model, hidden_states(encoder.model, ids, mask))[0]
        matrix, bias = output_layer(encoder.model)
        logits = states @ matrix.T + (0 if bias is None else bias)
    return logits.amax(dim=0).numpy()


@pytest.mark.parametrize("rate", [0.1, 0.99], ids=["active", "inactive"])
@pytest.mark.parametrize("activation", ["log1p_relu", "l0"])
def test_pooled_maxima_equal_plain_logits(tmp_path: Path, rate: float, activation: str):
    encoder = SparseEncoder.load(tiny_checkpoint(tmp_path / "bert", "bert"), activation=activation)
    before = output_layer(encoder.model)[1].detach().clone()
    texts = random_texts(WORDS, 20, 5)
    found = np.sort(pooled_maxima(encoder, texts, rate, max_length=7).ravel())[::-1]
    expected = np.sort(np.concatenate([plain_maxima(encoder, text, 7) for text in texts]))[::-1]
    exact = int(rate * len(expected)) + 1
    np.testing.assert_allclose(found[:exact], expected[:exact], atol=1e-4)
    assert torch.equal(output_layer(encoder.model)[1], before)


def test_shift_adds_bias_to_head_without_bias(tmp_path: Path):
    encoder = SparseEncoder.load(tiny_checkpoint(tmp_path / "gpt_neox", "gpt_neox"))
    shift_bias(encoder, 0.5)
    torch.testing.assert_close(output_layer(encoder.model)[1].detach(), torch.full((97,), -0.5))
    shift_bias(encoder, 0.5)
    torch.testing.assert_close(output_layer(encoder.model)[1].detach(), torch.full((97,), -1.0))


@pytest.mark.parametrize("rate", RATES)
def test_rate_holds_for_held_out_texts(tmp_path: Path, rate: float):
    encoder = SparseEncoder.load(tiny_checkpoint(tmp_path / "bert", "bert"), document_max_length=14)
    texts = random_texts(WORDS, 400, 12)
    chosen_on, held_out = texts[::2], texts[1::2]
    shift_bias(encoder, shift_for_rate(pooled_maxima(encoder, chosen_on, rate, max_length=14), rate))
    assert activation_rate(encoder, held_out, max_length=14) == pytest.approx(rate, abs=0.01)


@pytest.mark.long
def test_rates_hold_for_held_out_texts_in_onnx(tmp_path: Path):
    """A bundle has the smallest shift; a larger shift keeps the terms whose logits exceed the difference."""
    encoder = SparseEncoder.load(tiny_checkpoint(tmp_path / "bert", "bert"), document_max_length=14)
    texts = random_texts(WORDS, 400, 12)
    chosen_on, held_out = texts[::2], texts[1::2]
    shifts = [shift_for_rate(pooled_maxima(encoder, chosen_on, rate, max_length=14), rate) for rate in RATES]
    shift_bias(encoder, shifts[-1])
    encoder.save(tmp_path / "model")
    export_bundle(ExportSettings(model=str(tmp_path / "model"), output=str(tmp_path / "bundle"), top_k=97))
    exported = BundleEncoder(tmp_path / "bundle").encode(held_out, kind="document")
    assert len(exported.terms) / (len(held_out) * 97) == pytest.approx(RATES[-1], abs=0.01)
    logits = np.expm1(exported.weights)
    for rate, shift in zip(RATES, shifts, strict=True):
        assert (logits > shift - shifts[-1]).sum() / (len(held_out) * 97) == pytest.approx(rate, abs=0.01)


@pytest.mark.long
def test_real_model_reaches_rates_of_paper(splade_tiny: Path, shared_data: Path):
    encoder = SparseEncoder.load(splade_tiny)
    with (shared_data / "scifact" / "corpus.jsonl").open(encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line, _ in zip(lines, range(96), strict=False)]
    texts = [text for text in texts if len(text) > 500]  # all are cut to 32 tokens
    maxima = pooled_maxima(encoder, texts[::2], max(RATES), max_length=32)
    done = 0.0
    for rate in RATES:
        shift = shift_for_rate(maxima, rate)
        shift_bias(encoder, shift - done)
        done = shift
        assert activation_rate(encoder, texts[1::2], max_length=32) == pytest.approx(rate, abs=0.01)
