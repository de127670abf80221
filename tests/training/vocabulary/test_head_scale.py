from pathlib import Path

import numpy as np
import pytest
import torch

from lsr_prod.model import SparseEncoder
from lsr_prod.model.backbone import output_layer
from lsr_prod.training.vocabulary.head import Probe, choose_alpha, head_norms, probe_scale, scale_head
from tests.model.tiny import tiny_checkpoint


@pytest.fixture(params=["bert", "gpt_neox"], ids=["tied", "untied"])
def encoder(request: pytest.FixtureRequest, tmp_path: Path) -> SparseEncoder:
    return SparseEncoder.load(tiny_checkpoint(tmp_path / "checkpoint", request.param))


def test_norms_of_head(encoder: SparseEncoder):
    matrix = output_layer(encoder.model)[0].detach().numpy().astype(np.float64)
    norms = np.linalg.norm(matrix, axis=1)
    cosines = [a @ b / np.linalg.norm(a) / np.linalg.norm(b) for i, a in enumerate(matrix) for b in matrix[:i]]
    found = head_norms(encoder)
    assert found.mean_norm == pytest.approx(norms.mean())
    assert found.max_norm == pytest.approx(norms.max())
    assert found.anisotropy == pytest.approx(np.mean(cosines), abs=1e-6)
    assert found.tied == found.has_bias == (encoder.card.architecture == "BertForMaskedLM")


def test_scale_divides_matrix_and_keeps_bias(encoder: SparseEncoder, tmp_path: Path):
    matrix, bias = output_layer(encoder.model)
    inputs = encoder.model.get_input_embeddings().weight
    before = [tensor.detach().clone() for tensor in (matrix, inputs)]
    kept = None if bias is None else bias.detach().clone()
    was_tied = head_norms(encoder).tied
    scale_head(encoder, 4.0)
    encoder.save(tmp_path / "scaled")
    scaled = SparseEncoder.load(tmp_path / "scaled").model
    torch.testing.assert_close(output_layer(scaled)[0].detach(), before[0] / 4)
    torch.testing.assert_close(scaled.get_input_embeddings().weight.detach(), before[1] / (4 if was_tied else 1))
    if kept is not None:
        assert torch.equal(output_layer(scaled)[1], kept)
    assert (output_layer(scaled)[0] is scaled.get_input_embeddings().weight) == was_tied


def test_probe_equals_scores_of_scaled_head(encoder: SparseEncoder):
    queries, positives = ["w1 W2", "w3", "W4 w5 w7"], ["w1 w9", "w3 W10 w11", "w7"]
    before = output_layer(encoder.model)[0].detach().clone()
    probe = probe_scale(encoder, queries, positives, 2.0)
    assert torch.equal(output_layer(encoder.model)[0], before)
    scale_head(encoder, 2.0)
    q, d = (_dense(encoder, texts, kind) for texts, kind in ((queries, "query"), (positives, "document")))
    scores = q @ d.T
    assert probe.positive_score == pytest.approx(np.diag(scores).mean(), rel=1e-5)
    assert probe.other_score == pytest.approx(scores[~np.eye(3, dtype=bool)].mean(), rel=1e-5)
    assert probe.largest_weight == pytest.approx(np.concatenate([q, d]).max(axis=1).mean(), rel=1e-5)
    assert probe.query_terms == pytest.approx((q > 0).sum(axis=1).mean())
    assert probe.document_terms == pytest.approx((d > 0).sum(axis=1).mean())


def test_probe_of_one_pair_has_no_score_of_others(encoder: SparseEncoder):
    assert probe_scale(encoder, ["w1"], ["w1 w9"], 2.0).other_score == 0


def _dense(encoder: SparseEncoder, texts: list[str], kind: str) -> np.ndarray:
    batch = encoder.encode(texts, kind)  # type: ignore[arg-type]
    dense = np.zeros((len(texts), len(encoder.vocabulary)))
    for i in range(len(texts)):
        a, b = batch.offsets[i : i + 2]
        dense[i, batch.terms[a:b]] = batch.weights[a:b]
    return dense


def probes(*rows: tuple[float, float, float]) -> list[Probe]:
    """Probes from (score, weight, terms) for alpha 1, 2, 4, ..."""
    return [Probe(2.0**i, score, 0.0, weight, terms, terms) for i, (score, weight, terms) in enumerate(rows)]


def test_smallest_sufficient_alpha_is_chosen():
    found = probes((500, 4, 90), (90, 3.5, 60), (40, 2.5, 30), (5, 1, 10))
    assert choose_alpha(found, max_score=100, max_weight=3) == 4
    assert choose_alpha(found, max_score=100, max_weight=4) == 2
    assert choose_alpha(found, max_score=1000, max_weight=4) == 1


def test_alpha_that_leaves_texts_empty_is_not_chosen():
    assert choose_alpha(probes((500, 4, 90), (200, 3.5, 5), (0, 0, 0.1)), max_score=100, max_weight=3) == 2
    assert choose_alpha(probes((0, 0, 0)), max_score=100, max_weight=3) == 1


def test_auto_says_when_no_alpha_fits(caplog: pytest.LogCaptureFixture):
    assert choose_alpha(probes((900, 9, 90), (500, 8, 90)), max_score=100, max_weight=3) == 2
    assert caplog.records[0].getMessage().startswith("no alpha fits: 2 leaves a mean score of 500.0 (at most 100)")


@pytest.mark.long
def test_auto_keeps_trained_model_and_rescales_inflated_one(splade_tiny: Path):
    encoder = SparseEncoder.load(splade_tiny)
    queries = ["what is a neuron", "capital of france", "how to brew coffee", "symptoms of flu"]
    positives = [
        "A neuron is a cell of the nervous system that sends electric signals.",
        "Paris is the capital and the largest city of France.",
        "Coffee is brewed by pouring hot water onto ground coffee beans.",
        "The flu begins with fever, a sore throat, muscle pain and a headache.",
    ]
    for factor, expected in ((1.0, {1.0}), (5.0, {4.0, 8.0})):
        scale_head(encoder, 1 / factor)
        found = [probe_scale(encoder, queries, positives, alpha) for alpha in (1.0, 2.0, 4.0, 8.0, 16.0)]
        assert choose_alpha(found, max_score=100, max_weight=3) in expected
