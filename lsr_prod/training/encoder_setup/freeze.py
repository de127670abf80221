"""Freezing of weights."""

from typing import Literal

from transformers import PreTrainedModel

from lsr_prod.model.backbone import output_layer


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
