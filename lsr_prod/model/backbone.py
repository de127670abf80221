"""The two halves of a language model: the backbone that makes hidden states, and its vocabulary head.

Pooling needs them apart, because it works between the two. It also needs the head in two parts: the transform of a
hidden state, whose place differs from architecture to architecture (the table in this module says where; causal models
have none), and the output matrix [V, d] with its bias, for pooling makes that product itself, a tile at a time.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu
from transformers.masking_utils import create_bidirectional_mask

from lsr_prod.errors import ConfigError
from lsr_prod.formats.card import Attention

__all__ = [
    "ARCHITECTURES",
    "check_architecture",
    "echo_inputs",
    "head_input",
    "hidden_states",
    "is_causal",
    "output_layer",
    "transformer_layers",
    "vocabulary_logits",
]

_TRANSFORMS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "AlbertForMaskedLM": lambda model, hidden: model.predictions.LayerNorm(
        model.predictions.activation(model.predictions.dense(hidden))
    ),
    "BertForMaskedLM": lambda model, hidden: model.cls.predictions.transform(hidden),
    "DistilBertForMaskedLM": lambda model, hidden: model.vocab_layer_norm(
        model.activation(model.vocab_transform(hidden))
    ),
    "ModernBertForMaskedLM": lambda model, hidden: model.head(hidden),
    "RobertaForMaskedLM": lambda model, hidden: model.lm_head.layer_norm(gelu(model.lm_head.dense(hidden))),
}
_CAUSAL = ("GPTNeoXForCausalLM", "LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
ARCHITECTURES = (*_TRANSFORMS, *_CAUSAL)


def check_architecture(name: str, *, field: str) -> None:
    """Refuse a model whose head this module does not know.

    Args:
        name: class name, for example ``BertForMaskedLM``.
        field: the setting that names the model, for the error.

    Raises:
        ConfigError: the architecture is unknown.
    """
    if name not in ARCHITECTURES:
        raise ConfigError(
            field, f"{name} is no language model with a known head", f"use one of {', '.join(ARCHITECTURES)}"
        )


def is_causal(name: str) -> bool:
    """Whether an architecture, given by its class name, is a decoder: trained to see earlier tokens only."""
    return name in _CAUSAL


def hidden_states(
    model: Any,
    input_ids: Tensor,
    attention_mask: Tensor,
    token_type_ids: Tensor | None = None,
    *,
    attention: Attention = "bidirectional",
) -> Tensor:
    """The backbone's last layer.

    Args:
        model: a language model of transformers.
        input_ids: int64 [B, L].
        attention_mask: int64 [B, L], 0 at padding on either side.
        token_type_ids: int64 [B, L], for the architectures that have them; default zeros.
        attention: what a token sees, as in the encoder card; ``echo`` returns the states of the second copy.

    Returns:
        [B, L, d].
    """
    if is_causal(type(model).__name__):
        return _decoder_states(model, input_ids, attention_mask, attention)
    # A single text has type 0 throughout, so the models' own default is right and other architectures need no case.
    types = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
    hidden: Tensor = model.base_model(input_ids=input_ids, attention_mask=attention_mask, **types).last_hidden_state
    return hidden


def echo_inputs(input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
    """Every text twice (papers/csplade, 4): ids and mask, int64 [B, 2 L]; padding stays between the copies."""
    return torch.cat((input_ids, input_ids), dim=1), torch.cat((attention_mask, attention_mask), dim=1)


def _decoder_states(model: Any, input_ids: Tensor, attention_mask: Tensor, attention: Attention) -> Tensor:
    length = input_ids.shape[1]
    if attention == "echo":
        input_ids, attention_mask = echo_inputs(input_ids, attention_mask)
    # Padding has no position: the second copy goes on where the first one ends, however long the batch is.
    positions = (attention_mask.cumsum(dim=1) - 1).clamp(min=0)
    seen: Any = attention_mask
    if attention == "bidirectional":
        # A mask of all pairs, also where nothing is padded: without one the attention falls back to the causal form.
        like = attention_mask[:, :, None].to(model.dtype)  # only shape, type and device of the embeddings are asked for
        seen = create_bidirectional_mask(model.config, like, attention_mask, allow_is_bidirectional_skip=False)
    hidden: Tensor = model.base_model(
        input_ids=input_ids, attention_mask=seen, position_ids=positions, use_cache=False
    ).last_hidden_state
    return hidden[:, -length:] if attention == "echo" else hidden


def head_input(model: Any, hidden: Tensor) -> Tensor:
    """The head's transform, before its output matrix: [B, L, hidden] -> [B, L, d] (Albert's d is the embeddings').

    A causal model has none: its last layer ends with the norm.
    """
    if is_causal(type(model).__name__):
        return hidden
    states: Tensor = _TRANSFORMS[type(model).__name__](model, hidden)
    return states


def output_layer(model: Any) -> tuple[Tensor, Tensor | None]:
    """The output matrix [V, d], tied to the embeddings or not, and its bias [V] if it has one.

    Raises:
        ConfigError: an adapter is wrapped around the layer, so that its matrix is not all that it multiplies with.
    """
    layer = model.get_output_embeddings()
    if not isinstance(layer, nn.Linear):
        raise ConfigError(
            "model",
            f"its output matrix is a {type(layer).__name__}, no linear layer",
            "train the head itself, or merge its adapter first",
        )
    return layer.weight, layer.bias


def vocabulary_logits(model: Any, hidden: Tensor) -> Tensor:
    """The whole vocabulary head: [B, L, hidden] -> [B, L, V]."""
    logits: Tensor = model.get_output_embeddings()(head_input(model, hidden))
    return logits


def transformer_layers(model: nn.Module) -> list[nn.Module]:
    """The layers of the backbone in their order: the longest list of modules; none where layers share weights."""
    lists = [list(module) for module in model.modules() if isinstance(module, nn.ModuleList)]
    return max(lists, key=len, default=[])
