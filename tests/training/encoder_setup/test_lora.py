from pathlib import Path

import pytest
import torch

from lsr_prod.config.language import LoraSettings
from lsr_prod.errors import ConfigError
from lsr_prod.model import SparseEncoder
from lsr_prod.model.backbone import output_layer
from lsr_prod.training.encoder_setup import add_lora, check_lora, checkpoint_layers, merge_lora
from lsr_prod_contrib.cpu_training.attention import use_cpu_attention
from tests.model.tiny import CAUSAL, tiny_checkpoint

TEXTS = ["a query about sparse retrieval", "another one"]


@torch.no_grad()
def _vectors(encoder: SparseEncoder) -> torch.Tensor:
    tokens = encoder.tokenizer(TEXTS, padding=True, return_tensors="pt")
    return encoder(tokens["input_ids"], tokens["attention_mask"])


def _disturb(encoder: SparseEncoder) -> None:
    """A trained update: what starts as zero is no longer."""
    torch.manual_seed(1)
    for name, parameter in encoder.model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.3)


def test_lora_starts_at_zero_and_merges_exactly(tiny_model: Path) -> None:
    plain, updated = SparseEncoder.load(tiny_model).double(), SparseEncoder.load(tiny_model).double()
    names = sorted(plain.model.state_dict())
    add_lora(updated.model, LoraSettings(rank=4))
    before = _vectors(plain)
    torch.testing.assert_close(_vectors(updated), before)
    _disturb(updated)
    trained = _vectors(updated)
    assert (trained - before).abs().max() > 0.01
    merge_lora(updated.model)
    assert sorted(updated.model.state_dict()) == names
    torch.testing.assert_close(_vectors(updated), trained)
    assert all(parameter.requires_grad for parameter in updated.model.parameters())


def test_lora_updates_only_target_modules(tiny_model: Path) -> None:
    encoder = SparseEncoder.load(tiny_model)
    add_lora(encoder.model, LoraSettings(targets=["query", "value"], train_head_bias=False))
    trained = {name for name, parameter in encoder.model.named_parameters() if parameter.requires_grad}
    assert trained
    assert all(".query." in name or ".value." in name for name in trained)


def test_lora_rejects_unknown_target_and_lists_modules(tiny_model: Path) -> None:
    model, settings = SparseEncoder.load(tiny_model).model, LoraSettings(targets=["q_proj"])
    with pytest.raises(ConfigError, match=r"q_proj is no linear module.*; it has dense, key, query, value"):
        add_lora(model, settings)
    with pytest.raises(ConfigError, match=r"q_proj is no linear module of BertForMaskedLM; it has a, b"):
        check_lora(settings, {"b", "a"}, "BertForMaskedLM")


@pytest.mark.parametrize("architecture", CAUSAL)
def test_lora_keeps_tied_head_of_decoder_and_adds_bias(tmp_path: Path, architecture: str) -> None:
    """papers/csplade: updates of the layers, a head that stays, a new bias; merged, all of it is in the directory."""
    encoder = SparseEncoder.load(tiny_checkpoint(tmp_path / "checkpoint", architecture), attention="bidirectional",
                                 query_max_length=20, document_max_length=30)  # fmt: skip
    names = set(encoder.model.state_dict())
    head, embeddings = encoder.model.get_output_embeddings().weight, encoder.model.get_input_embeddings().weight
    before, tied = head.clone(), head is embeddings
    add_lora(encoder.model, LoraSettings(rank=4))
    trained = {name for name, parameter in encoder.model.named_parameters() if parameter.requires_grad}
    assert {name for name in trained if "lora_" not in name} == {"lm_head.bias"}
    use_cpu_attention(encoder.model)
    checkpoint_layers(encoder.model)
    encoder.train()
    optimizer = torch.optim.SGD([p for p in encoder.model.parameters() if p.requires_grad], 0.5)
    ids, mask = torch.randint(8, 97, (3, 9), generator=torch.Generator().manual_seed(1)), torch.ones(3, 9).long()
    for _ in range(3):
        encoder(ids, mask).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    encoder.eval()
    with torch.no_grad():
        expected = encoder(ids, mask)
    merge_lora(encoder.model)
    assert set(encoder.model.state_dict()) == names | {"lm_head.bias"}
    encoder.save(tmp_path / "model")
    again = SparseEncoder.load(tmp_path / "model")
    weight, bias = output_layer(again.model)
    torch.testing.assert_close(weight, before)
    assert (weight is again.model.get_input_embeddings().weight) == tied
    assert bias is not None
    assert bias.abs().max() > 0.01
    with torch.no_grad():
        torch.testing.assert_close(again(ids, mask), expected, rtol=1e-4, atol=1e-4)


def test_lora_adds_no_bias_to_decoder_without_train_head_bias(tmp_path: Path) -> None:
    encoder = SparseEncoder.load(tiny_checkpoint(tmp_path / "checkpoint", "llama"))
    add_lora(encoder.model, LoraSettings(rank=4, train_head_bias=False))
    assert output_layer(encoder.model)[1] is None
