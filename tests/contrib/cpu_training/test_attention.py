from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import (
    AlbertConfig,
    AlbertForMaskedLM,
    BertConfig,
    BertForMaskedLM,
    DistilBertConfig,
    DistilBertForMaskedLM,
    ModernBertConfig,
    ModernBertForMaskedLM,
    RobertaConfig,
    RobertaForMaskedLM,
)

from lsr_prod.model import SparseEncoder
from lsr_prod_contrib.cpu_training import attention
from lsr_prod_contrib.cpu_training.attention import attention_with_dropout, kept_pairs, use_cpu_attention


def _plain(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, kept: Tensor, dropout: float) -> Tensor:
    scores = query @ key.transpose(2, 3) * 0.3
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else scores + mask
    return (torch.softmax(scores, dim=3) * kept / (1 - dropout)) @ value


@pytest.mark.parametrize("masked", [None, "bool", "float"])
@pytest.mark.parametrize("tile", [1, 7 * 7 * 2, 1 << 20])
@pytest.mark.parametrize("kind", [torch.float64, torch.bfloat16])
def test_attention_matches_formula_in_value_and_gradients(
    monkeypatch: pytest.MonkeyPatch, masked: str | None, tile: int, kind: torch.dtype
) -> None:
    monkeypatch.setattr(attention, "_TILE", tile)
    torch.manual_seed(0)
    B, H, L, d, dropout = 2, 3, 7, 4, 0.25
    inputs = [torch.randn(B, H, L, d, dtype=torch.float64).to(kind).requires_grad_() for _ in range(3)]
    mask = None
    if masked is not None:
        mask = torch.rand(B, 1, 1, L) < 0.7
        mask[..., 0] = True
        mask = mask if masked == "bool" else torch.where(mask, 0.0, -1e9).double()
    torch.manual_seed(5)
    found = attention_with_dropout(*inputs, mask, dropout, 0.3)
    above = torch.randn_like(found)
    torch.autograd.backward(found, above)
    gradients = [one.grad for one in inputs]

    torch.manual_seed(5)
    generator = torch.Generator().manual_seed(int(torch.randint(2**62, ())))
    several = max(1, tile // (L * L))
    kept = torch.empty(B, H, L, L)
    for text in range(B):
        for first in range(0, H, several):
            heads = kept[text, first : first + several]
            heads.copy_(kept_pairs(heads.numel(), dropout, generator).view_as(heads))
    copies = [one.detach().double().requires_grad_() for one in inputs]
    expected = _plain(*copies, mask, kept, dropout)
    torch.autograd.backward(expected, above.double())
    assert {one.dtype for one in (found, *gradients)} == {kind}
    for one, other in zip((found, *gradients), (expected, *(copy.grad for copy in copies)), strict=True):
        if kind == torch.float64:
            torch.testing.assert_close(one, other)
        else:  # 8 bits of each factor and product
            assert torch.linalg.vector_norm(one - other) < 0.02 * torch.linalg.vector_norm(other)


@pytest.mark.parametrize("dropout", [0.1, 0.5])
def test_kept_pairs_have_configured_rate(dropout: float) -> None:
    kept = kept_pairs(1_000_003, dropout, torch.Generator().manual_seed(1))
    assert kept.shape == (1_000_003,)
    assert abs(float(kept.double().mean()) - (1 - dropout)) < 0.002
    lanes = [float(kept[lane::4].double().mean()) for lane in range(4)]
    assert max(lanes) - min(lanes) < 0.005


def test_attention_is_determined_by_generator(tiny_model: Path) -> None:
    encoder = SparseEncoder.load(tiny_model).train()
    use_cpu_attention(encoder.model)
    ids, mask = torch.tensor([[101, 2000, 3000, 102]]), torch.ones(1, 4, dtype=torch.int64)
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        found.append(encoder(ids, mask))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


SIZES = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
MODELS = {
    "albert": lambda: AlbertForMaskedLM(AlbertConfig(**SIZES, embedding_size=8, attention_probs_dropout_prob=0.2)),
    "bert": lambda: BertForMaskedLM(BertConfig(**SIZES, attention_probs_dropout_prob=0.2)),
    "distilbert": lambda: DistilBertForMaskedLM(
        DistilBertConfig(vocab_size=50, dim=16, n_layers=2, n_heads=2, hidden_dim=32, attention_dropout=0.2)
    ),
    "modernbert": lambda: ModernBertForMaskedLM(
        ModernBertConfig(**SIZES, attention_dropout=0.2, pad_token_id=0, bos_token_id=1, eos_token_id=2)
    ),
    "roberta": lambda: RobertaForMaskedLM(RobertaConfig(**SIZES, attention_probs_dropout_prob=0.2)),
}


@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_architecture_uses_cpu_attention_only_in_training(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    torch.manual_seed(0)
    model = MODELS[name]()
    ids = torch.randint(3, 50, (3, 9))
    mask = torch.ones_like(ids)
    mask[1, 5:] = 0
    expected = model.eval()(input_ids=ids, attention_mask=mask).logits
    use_cpu_attention(model)
    torch.testing.assert_close(model.eval()(input_ids=ids, attention_mask=mask).logits, expected)

    calls = []
    ours = attention.attention_with_dropout
    monkeypatch.setattr(attention, "attention_with_dropout", lambda *given: calls.append(given) or ours(*given))
    model.train()(input_ids=ids, attention_mask=mask).logits.sum().backward()
    assert [given[4] for given in calls] == [0.2, 0.2]


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_query_without_visible_key_attends_to_nothing(kind: str) -> None:
    torch.manual_seed(0)
    inputs = [torch.randn(2, 3, 7, 4).requires_grad_() for _ in range(3)]
    visible = torch.ones(2, 1, 7, 7, dtype=torch.bool)
    visible[1, :, 5] = False
    mask = visible if kind == "bool" else torch.zeros(visible.shape).masked_fill_(~visible, float("-inf"))
    found = attention_with_dropout(*inputs, mask, 0.1, 0.3)
    found.sum().backward()
    assert not found[1, :, 5].any()
    assert not inputs[0].grad[1, :, 5].any()
    assert all(one.grad.isfinite().all() for one in inputs)


def test_attention_keeps_nan_of_its_input() -> None:
    inputs = [torch.randn(1, 1, 7, 4) for _ in range(3)]
    inputs[0][0, 0, 2] = float("nan")
    mask = torch.ones(1, 1, 7, 7, dtype=torch.bool)
    mask[..., 5, :] = False
    found = attention_with_dropout(*inputs, mask, 0.1, 0.3)
    assert found.isnan().any(dim=3).flatten().tolist() == [row == 2 for row in range(7)]


def test_padding_beyond_sliding_window_leaves_gradients_finite() -> None:
    torch.manual_seed(0)
    model = ModernBertForMaskedLM(
        ModernBertConfig(
            **SIZES, attention_dropout=0.1, local_attention=4, pad_token_id=0, bos_token_id=1, eos_token_id=2
        )
    )
    use_cpu_attention(model.train())
    ids = torch.randint(3, 50, (2, 12))
    mask = torch.ones_like(ids)
    mask[1, 4:] = 0
    loss = model(input_ids=ids, attention_mask=mask, labels=ids.where(mask == 1, -100)).loss
    loss.backward()
    assert loss.isfinite()
    assert all(one.grad.isfinite().all() for one in model.parameters() if one.grad is not None)
