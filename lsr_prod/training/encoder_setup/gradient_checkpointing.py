"""Gradient checkpointing: layers keep only their input and are recomputed in the backward pass."""

from typing import Any

from transformers import PreTrainedModel

from lsr_prod.errors import ConfigError
from lsr_prod.model.backbone import transformer_layers


def checkpoint_layers(model: PreTrainedModel, *, kept: int = 1) -> None:
    """Turn on gradient checkpointing, in place, for all layers but the last ones.

    The backward pass reaches the last layers first, when no memory is freed yet: recomputing them saves nothing. The
    vocabulary head is never recomputed; it keeps one byte per (text, term).
    """
    layers: list[Any] = [layer for layer in transformer_layers(model) if hasattr(layer, "gradient_checkpointing")]
    if not layers:
        raise ConfigError(
            "scale.gradient_checkpointing",
            f"{type(model).__name__} does not support gradient checkpointing",
            "set it to false and lower batch.chunk",
        )
    model.config.use_cache = False  # a cache is for generation, and transformers refuses it with checkpointing
    model.activation_checkpointing_enable()
    for layer in layers[-kept:]:
        layer.gradient_checkpointing = False
