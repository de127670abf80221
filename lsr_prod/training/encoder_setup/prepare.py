"""Prepare an encoder for training, in place."""

from typing import Any

from torch import nn
from transformers import PreTrainedModel

from lsr_prod.config.language import LanguageSettings
from lsr_prod.errors import ConfigError
from lsr_prod.model import SparseEncoder
from lsr_prod.model.backbone import transformer_layers
from lsr_prod.training.encoder_setup.flash import use_flash_attention
from lsr_prod.training.encoder_setup.freeze import freeze
from lsr_prod.training.encoder_setup.lora import add_lora
from lsr_prod.training.encoder_setup.sides import freeze_side, models_of
from lsr_prod.training.rng import seed_torch
from lsr_prod.training.steps import LoopSettings


def prepare_encoder(encoder: SparseEncoder, settings: LoopSettings) -> None:
    """Set attention and dropout, add LoRA, checkpoint gradients and freeze weights, as the stage configures."""
    seed_torch(settings.seed)  # LoRA weights are random, and must be equal on every worker
    for model in models_of(encoder):
        if settings.scale.attention == "flash":
            use_flash_attention(model)
        if settings.dropout is not None:
            set_dropout(model, settings.dropout)
        if settings.scale.lora is not None:
            add_lora(model, settings.scale.lora)
        if settings.scale.gradient_checkpointing:
            checkpoint_layers(model, kept=settings.scale.kept_layers)
    if isinstance(settings, LanguageSettings):
        freeze(encoder.model, settings.trained)
    elif (frozen := freeze_side(encoder, settings.trained)) is not None:
        set_dropout(frozen, 0.0)  # fixed vectors, in training mode too


def set_dropout(model: nn.Module, rate: float) -> None:
    """Set the rate of every dropout of a model, including attentions that store it as a plain number."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = rate
        if isinstance(getattr(module, "attention_dropout", None), float):
            setattr(module, "attention_dropout", rate)  # noqa: B010


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
