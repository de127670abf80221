"""Low-rank updates (LoRA) of the backbone's linear layers with peft: added before training, merged at the end."""

from collections.abc import Collection

import torch
from torch import nn
from transformers import PreTrainedModel

from lsr_prod.config.optimization import LoraSettings
from lsr_prod.errors import ConfigError, MissingExtraError
from lsr_prod.model.backbone import output_layer
from lsr_prod.model.output_layer import add_output_bias


def check_lora(settings: LoraSettings, names: Collection[str], architecture: str) -> None:
    """Reject target modules that a model does not have."""
    try:
        import peft  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("peft", "train") from error
    for target in settings.targets:
        if target not in names:
            raise ConfigError(
                "train.stages.scale.lora.targets",
                f"{target} is no linear module of {architecture}",
                f"it has {', '.join(sorted(names))}",
            )


def add_lora(model: PreTrainedModel, settings: LoraSettings) -> None:
    """Add low-rank updates in place; afterwards only they and, if configured, the bias of the head are trained.

    A head that is tied to the embeddings is not changed; a head without bias gets one of zeros.
    """
    from peft import LoraConfig, inject_adapter_in_model

    modules = {name: name.rpartition(".")[2] for name in _linear_modules(model)}
    check_lora(settings, set(modules.values()), type(model).__name__)
    targets = [name for name, last in modules.items() if not settings.targets or last in settings.targets]
    inject_adapter_in_model(
        LoraConfig(r=settings.rank, lora_alpha=settings.alpha, lora_dropout=settings.dropout, target_modules=targets),
        model,
    )
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


def _linear_modules(model: PreTrainedModel) -> list[str]:
    base = model.base_model_prefix
    return [f"{base}.{name}" for name, module in model.base_model.named_modules() if isinstance(module, nn.Linear)]
