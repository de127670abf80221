"""Prepare an encoder for training, in place."""

from torch import nn

from lsr_prod.config.language import LanguageSettings
from lsr_prod.config.train import FinetuneSettings
from lsr_prod.model import SparseEncoder
from lsr_prod.training.encoder_setup.flash import use_flash_attention
from lsr_prod.training.encoder_setup.freeze import freeze
from lsr_prod.training.encoder_setup.gradient_checkpointing import checkpoint_layers
from lsr_prod.training.encoder_setup.lora import add_lora
from lsr_prod.training.encoder_setup.sides import freeze_side, models_of
from lsr_prod.training.rng import seed_torch


def prepare_encoder(encoder: SparseEncoder, settings: FinetuneSettings | LanguageSettings) -> None:
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
