"""FlashAttention is refused in one line where it cannot run; its arithmetic needs a GPU."""

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from lsr_prod.config.language import ScaleSettings
from lsr_prod.errors import ConfigError
from lsr_prod.model import SparseEncoder
from lsr_prod.training.encoder_setup import check_flash, use_flash_attention

INSTALLED = find_spec("flash_attn") is not None


def test_decoder_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"scale\.attention: flash does not support LlamaForCausalLM"):
        check_flash("LlamaForCausalLM")


@pytest.mark.skipif(INSTALLED, reason="flash_attn is installed")
def test_missing_package_is_named_before_and_during_the_training(tiny_model: Path) -> None:
    with pytest.raises(ConfigError, match="flash_attn is not installed; pip install flash-attn"):
        check_flash("BertForMaskedLM")
    with pytest.raises(ConfigError, match="flash is not possible here: FlashAttention2 has been toggled on"):
        use_flash_attention(SparseEncoder.load(tiny_model).model)


def test_flash_needs_half_precision() -> None:
    with pytest.raises(ValueError, match="set precision to bf16"):
        ScaleSettings(attention="flash", precision="fp32")
    for precision in ("auto", "bf16"):
        assert ScaleSettings(attention="flash", precision=precision).attention == "flash"


@pytest.mark.skipif(not (INSTALLED and torch.cuda.is_available()), reason="needs a GPU and flash_attn")
def test_vectors_are_those_of_plain_attention(tiny_model: Path) -> None:
    plain, flash = (SparseEncoder.load(tiny_model).cuda().eval() for _ in range(2))
    use_flash_attention(flash.model)
    tokens = plain.tokenizer(["a query about sparse retrieval", "another one"], padding=True, return_tensors="pt")
    with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
        one, other = (model(tokens["input_ids"].cuda(), tokens["attention_mask"].cuda()) for model in (plain, flash))
    torch.testing.assert_close(one, other, rtol=0.05, atol=0.05)
