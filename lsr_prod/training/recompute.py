"""Gradient checkpointing: layers keep their input only and are computed again in the backward pass."""

from typing import Any

from transformers import PreTrainedModel

from lsr_prod.errors import ConfigError
from lsr_prod.model.backbone import transformer_layers

__all__ = ["recompute_layers"]


def recompute_layers(model: PreTrainedModel, *, kept: int = 1) -> None:
    """Turn it on for all layers but the last: that one's turn comes first, when nothing has been freed yet.

    The vocabulary head is never computed again: it keeps a byte a pair (text, term).

    Args:
        model: in place.
        kept: layers at the end that keep everything.

    Raises:
        ConfigError: the architecture has no layers of its own to compute again (ALBERT shares one).
    """
    layers: list[Any] = [layer for layer in transformer_layers(model) if hasattr(layer, "gradient_checkpointing")]
    if not layers:
        raise ConfigError(
            "scale.gradient_checkpointing",
            f"{type(model).__name__} cannot do it",
            "set it to false and lower batch.chunk",
        )
    model.config.use_cache = False  # a cache is for generation, and is refused beside this
    model.activation_checkpointing_enable()
    for layer in layers[-kept:]:
        layer.gradient_checkpointing = False
