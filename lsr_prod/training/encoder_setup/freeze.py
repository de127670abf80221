"""Which weights of a model are trained; the others are frozen."""

from typing import Literal

from transformers import PreTrainedModel

from lsr_prod.model.backbone import output_layer

__all__ = ["freeze"]


def freeze(model: PreTrainedModel, trained: Literal["all", "embeddings", "head"]) -> None:
    """Freeze all weights but some, in place.

    Args:
        model: a language model.
        trained: ``all``; ``embeddings``, those of tokens, the output matrix and its bias (vocabulary-transfer, 4.2.3);
            or ``head``, all that stands behind the backbone.
    """
    if trained == "all":
        return
    layer = {id(one) for one in output_layer(model)}
    if trained == "embeddings":
        layer.add(id(model.get_input_embeddings().weight))
    prefix = f"{model.base_model_prefix}."
    for name, parameter in model.named_parameters():
        behind = trained == "head" and not name.startswith(prefix)
        parameter.requires_grad_(behind or id(parameter) in layer)
