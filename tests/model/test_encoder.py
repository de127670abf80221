from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from lsr_prod.model import SparseEncoder
from tests.model.tiny import ARCHITECTURES, tiny_checkpoint

TEXTS = ["w1 W2 w3", "", "w5", "W0 " * 40, " \n", "w1 w91 nothing-known"]


@pytest.fixture(scope="module", params=ARCHITECTURES)
def encoder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> SparseEncoder:
    folder = tiny_checkpoint(tmp_path_factory.mktemp(request.param), request.param)
    return SparseEncoder.load(folder, query_max_length=5, document_max_length=30)


def _plain(encoder: SparseEncoder, ids: torch.Tensor, mask: torch.Tensor, first: int = 0) -> torch.Tensor:
    """The definition, one row at a time and without padding: log1p(relu(max of the model's own logits))."""
    rows = []
    for row, kept in zip(ids, mask, strict=True):
        logits = encoder.model(input_ids=row[kept > 0][None], attention_mask=kept[kept > 0][None]).logits[0]
        rows.append(torch.log1p(torch.relu(logits[first:].amax(dim=0))))
    return torch.stack(rows)


def _batch(rows: int, length: int, pad: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(rows * 100 + length)
    ids = torch.randint(8, 97, (rows, length), generator=generator)
    mask = torch.ones_like(ids)
    for row in range(1, rows):
        cut = max(1, length - 3 * row)
        mask[row, cut:], ids[row, cut:] = 0, pad
    return ids, mask


@pytest.mark.parametrize(("rows", "length"), [(1, 1), (1, 12), (2, 7), (5, 40)])
@torch.inference_mode()
def test_padded_batch_equals_definition_row_by_row(encoder: SparseEncoder, rows: int, length: int) -> None:
    ids, mask = _batch(rows, length, encoder.model.config.pad_token_id)
    torch.testing.assert_close(encoder(ids, mask), _plain(encoder, ids, mask), atol=1e-5, rtol=0)


@torch.inference_mode()
def test_attention_is_bidirectional_without_padding(encoder: SparseEncoder) -> None:
    ids, mask = _batch(1, 9, encoder.model.config.pad_token_id)
    other = ids.clone()
    other[0, -1] = (other[0, -1] - 8 + 1) % 89 + 8
    hidden = [encoder.model.base_model(input_ids=x, attention_mask=mask).last_hidden_state for x in (ids, other)]
    assert (hidden[0][0, 0] - hidden[1][0, 0]).abs().max() > 1e-5, "a causal model would not see the last token"


@torch.inference_mode()
def test_not_bos_and_l0(encoder: SparseEncoder) -> None:
    ids, mask = _batch(3, 11, encoder.model.config.pad_token_id)
    changed = SparseEncoder(
        encoder.model, encoder.tokenizer, replace(encoder.card, pooled_tokens="not_bos", activation="l0")
    ).eval()
    expected = torch.log1p(_plain(encoder, ids, mask, first=1))
    torch.testing.assert_close(changed(ids, mask), expected, atol=1e-5, rtol=0)
    assert not changed(ids[:, :1], mask[:, :1]).any(), "nothing is left to pool"


def test_encode_keeps_order_and_maps_empty_text_to_empty_vector(encoder: SparseEncoder) -> None:
    batch = encoder.encode(TEXTS, batch_size=2)
    assert [len(batch.row(i)[0]) > 0 for i in range(len(TEXTS))] == [True, False, True, True, False, True]
    for i, text in enumerate(TEXTS):
        alone = encoder.encode([text])
        np.testing.assert_array_equal(np.sort(batch.row(i)[0]), np.sort(alone.terms))
        np.testing.assert_allclose(batch.row(i)[1], alone.weights, atol=1e-5)
    assert len(encoder.encode([])) == 0


def test_kind_selects_length_and_prompt(encoder: SparseEncoder) -> None:
    prompted = SparseEncoder(encoder.model, encoder.tokenizer, replace(encoder.card, query_prompt="w9 w11 ")).eval()
    cut, whole = encoder.encode(["w9 w11 w13"], "query"), prompted.encode(["w13 W20 w21"], "query")
    np.testing.assert_allclose(cut.weights, whole.weights, atol=1e-6)
    assert not np.array_equal(encoder.encode(["w9 " * 20], "query").weights, encoder.encode(["w9 " * 20]).weights)


def test_encode_restores_training_mode(encoder: SparseEncoder) -> None:
    encoder.train()
    first, second = encoder.encode(["w1 w2"]), encoder.encode(["w1 w2"])
    assert encoder.training
    encoder.eval()
    np.testing.assert_array_equal(first.weights, second.weights)


def test_real_checkpoint_expands_texts(splade_tiny: Path) -> None:
    encoder = SparseEncoder.load(splade_tiny)
    terms, weights = encoder.encode(["information retrieval with sparse vectors"]).row(0)
    assert encoder.card.casing == "lowercase"
    assert {"retrieval", "information", "sparse", "dense"} <= {encoder.vocabulary[term] for term in terms[:5]}
    assert np.all(np.diff(weights) <= 0)
