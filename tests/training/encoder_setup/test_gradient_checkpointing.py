from pathlib import Path

import pytest
import torch
from transformers import AlbertConfig, AlbertForMaskedLM

from lsr_prod.errors import ConfigError
from lsr_prod.model import SparseEncoder
from lsr_prod.model.backbone import transformer_layers
from lsr_prod.training.encoder_setup import checkpoint_layers
from lsr_prod_contrib.cpu_training.attention import use_cpu_attention
from tests.model.tiny import tiny_checkpoint


@pytest.mark.parametrize("kept", [None, 1, 2])
def test_checkpointing_gives_same_gradients_with_dropout(tiny_model: Path, kept: int | None) -> None:
    encoder = SparseEncoder.load(tiny_model).train()
    use_cpu_attention(encoder.model)
    if kept is not None:
        checkpoint_layers(encoder.model, kept=kept)
        layers = transformer_layers(encoder.model)
        assert [layer.gradient_checkpointing for layer in layers] == [
            i < len(layers) - kept for i in range(len(layers))
        ]
    torch.manual_seed(3)
    ids = torch.randint(1000, 30000, (3, 9))
    encoder(ids, torch.ones_like(ids)).square().sum().backward()
    found = {name: p.grad for name, p in encoder.model.named_parameters()}

    plain = SparseEncoder.load(tiny_model).train()
    use_cpu_attention(plain.model)
    torch.manual_seed(3)
    ids = torch.randint(1000, 30000, (3, 9))
    plain(ids, torch.ones_like(ids)).square().sum().backward()
    torch.testing.assert_close(found, {name: p.grad for name, p in plain.model.named_parameters()})


@pytest.mark.parametrize("attention", ["causal", "bidirectional", "echo"])
@pytest.mark.parametrize("architecture", ["llama", "gpt_neox"])
def test_decoder_with_checkpointing_gives_same_output(tmp_path: Path, architecture: str, attention: str) -> None:
    """With the attention of CPUs and checkpointing it sees what it saw: no mask is lost on the way."""
    folder = tiny_checkpoint(tmp_path / "checkpoint", architecture)
    lengths = {"attention": attention, "query_max_length": 20, "document_max_length": 30}
    ids = torch.randint(8, 97, (3, 9), generator=torch.Generator().manual_seed(2))
    for mask in (torch.ones_like(ids), torch.tensor([[1] * 9, [1] * 4 + [0] * 5, [1] + [0] * 8])):
        found = []
        for trained in (False, True):
            encoder = SparseEncoder.load(folder, **lengths).train()
            if trained:
                use_cpu_attention(encoder.model)
                checkpoint_layers(encoder.model)
            weights = encoder(ids, mask)
            weights.square().sum().backward()
            found.append((weights.detach(), {name: p.grad for name, p in encoder.model.named_parameters()}))
        torch.testing.assert_close(found[1][0], found[0][0], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(found[1][1], found[0][1], atol=1e-4, rtol=1e-4)


def test_checkpointing_rejects_model_with_one_shared_layer() -> None:
    config = AlbertConfig(
        vocab_size=50,
        embedding_size=8,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
    )
    with pytest.raises(ConfigError, match="AlbertForMaskedLM does not support gradient checkpointing"):
        checkpoint_layers(AlbertForMaskedLM(config))
