"""FlashAttention 2 for training on GPUs: transformers passes it a batch without its padding."""

from importlib.util import find_spec

from transformers import PreTrainedModel

from lsr_prod.errors import ConfigError
from lsr_prod.model.backbone import is_causal

_FIELD = "scale.attention"


def check_flash(architecture: str) -> None:
    """Reject FlashAttention for a model that does not support it, or without its package."""
    remedy = "leave it out"
    if is_causal(architecture):
        raise ConfigError(_FIELD, f"flash does not support {architecture}, a decoder", remedy)
    if find_spec("flash_attn") is None:
        raise ConfigError(_FIELD, "flash_attn is not installed", f"pip install flash-attn, or {remedy}")


def use_flash_attention(model: PreTrainedModel) -> None:
    """Make a model attend with FlashAttention 2."""
    try:
        model.set_attn_implementation("flash_attention_2")
    except (ImportError, ValueError) as error:
        reason = str(error).partition("\n")[0][:200]
        raise ConfigError(_FIELD, f"flash is not possible here: {reason}", "leave it out") from error
