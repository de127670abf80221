"""Prepare an encoder for training, in place."""

from collections.abc import Collection
from importlib.util import find_spec
from typing import Any, Literal

import torch
from transformers import PreTrainedModel

from lsr_prod.config import language, training
from lsr_prod.errors import ConfigError, MissingExtraError
from lsr_prod.inference.session import processor_has
from lsr_prod.model import SparseEncoder
from lsr_prod.model.backbone import is_causal, output_layer, transformer_layers
from lsr_prod.model.output_layer import add_output_bias
from lsr_prod.training.twins import seed_torch

_FIELD = "scale.attention"
_WIDE = 256  # numbers of a hidden state from which time matters more than equal weights on every processor


def check_lora(settings: language.LoraSettings, names: Collection[str], architecture: str) -> None:
    """Reject target modules that a model does not have."""
    try:
        import peft  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("peft", "train") from error
    for target in settings.targets:
        if target not in names:
            problem = f"{target} is no linear module of {architecture}"
            raise ConfigError("train.stages.scale.lora.targets", problem, f"it has {', '.join(sorted(names))}")


def add_lora(model: PreTrainedModel, settings: language.LoraSettings) -> None:
    """Add low-rank updates in place; afterwards only they and, if configured, the bias of the head are trained.

    A head that is tied to the embeddings is not changed; a head without bias gets one of zeros.
    """
    from peft import LoraConfig, inject_adapter_in_model

    linear = [name for name, module in model.base_model.named_modules() if isinstance(module, torch.nn.Linear)]
    modules = {f"{model.base_model_prefix}.{name}": name.rpartition(".")[2] for name in linear}
    check_lora(settings, set(modules.values()), type(model).__name__)
    targets = [name for name, last in modules.items() if not settings.targets or last in settings.targets]
    options: dict[str, Any] = {"r": settings.rank, "lora_alpha": settings.alpha, "lora_dropout": settings.dropout}
    inject_adapter_in_model(LoraConfig(**options, target_modules=targets), model)
    if settings.train_head_bias:
        weight, bias = output_layer(model)
        if bias is None:
            add_output_bias(model, torch.zeros(len(weight)))
        _, bias = output_layer(model)
        assert bias is not None
        bias.requires_grad_(True)


def merge_lora(model: PreTrainedModel) -> None:
    """Add the updates to the weights in place, and restore the modules of the plain model."""
    from peft.tuners.lora import LoraLayer

    for name, module in list(model.named_modules()):
        if isinstance(module, LoraLayer):
            module.merge()
            parent, _, attribute = name.rpartition(".")
            setattr(model.get_submodule(parent), attribute, module.get_base_layer())
    model.requires_grad_(True)


def models_of(encoder: SparseEncoder) -> list[PreTrainedModel]:
    """Return the model of an encoder, and that of its separate query encoder."""
    return [encoder.model] if encoder.queries is None else [encoder.model, encoder.queries.model]


def trained_module(encoder: SparseEncoder) -> torch.nn.Module:
    """Return the module whose parameters are trained and stored in checkpoints."""
    if encoder.queries is None:
        return encoder.model
    return torch.nn.ModuleDict({"document": encoder.model, "query": encoder.queries.model})


def freeze_side(encoder: SparseEncoder, trained: Literal["both", "query", "document"]) -> PreTrainedModel | None:
    """Freeze the document encoder, the query encoder or none, in place; return the frozen model."""
    if encoder.queries is None or trained == "both":
        return None
    frozen = encoder.model if trained == "query" else encoder.queries.model
    frozen.requires_grad_(requires_grad=False)
    return frozen


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


def freeze(model: PreTrainedModel, trained: Literal["all", "embeddings", "head"]) -> None:
    """Freeze all weights except the trained ones, in place."""
    if trained == "all":
        return
    layer = {id(one) for one in output_layer(model)}
    if trained == "embeddings":
        layer.add(id(model.get_input_embeddings().weight))
    prefix = f"{model.base_model_prefix}."
    for name, parameter in model.named_parameters():
        after = trained == "head" and not name.startswith(prefix)
        parameter.requires_grad_(after or id(parameter) in layer)


def uses_bf16(encoder: SparseEncoder, scale: language.ScaleSettings, device: torch.device) -> bool:
    """Return whether a training on a device multiplies matrices in bf16.

    ``auto`` leaves narrow models at fp32: they are trained soon enough, and with equal weights on every processor.
    """
    if scale.precision != "auto":
        return scale.precision == "bf16"
    if scale.attention == "flash":  # it has no other precision
        return True
    if encoder.model.config.hidden_size < _WIDE:
        return False
    return multiplies_bf16(device)


def multiplies_bf16(device: torch.device) -> bool:
    """Return whether a device multiplies matrices in bf16 in hardware."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return processor_has("avx512_bf16", "amx_bf16")


def prepare_encoder(encoder: SparseEncoder, settings: training.LoopSettings) -> None:
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
    if isinstance(settings, language.LanguageSettings):
        freeze(encoder.model, settings.trained)
    elif (frozen := freeze_side(encoder, settings.trained)) is not None:
        set_dropout(frozen, 0.0)  # fixed vectors, in training mode too


def set_dropout(model: torch.nn.Module, rate: float) -> None:
    """Set the rate of every dropout of a model, including attentions that store it as a plain number."""
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
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
        problem = f"{type(model).__name__} does not support gradient checkpointing"
        raise ConfigError("scale.gradient_checkpointing", problem, "set it to false and lower batch.chunk")
    model.config.use_cache = False  # a cache is for generation, and transformers refuses it with checkpointing
    # Its name in transformers 5.17 and earlier is the second.
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable()
    for layer in layers[-kept:]:
        layer.gradient_checkpointing = False
