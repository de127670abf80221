"""Access to the parts of a language model: the backbone, the transform of its vocabulary head, and the output matrix.

Pooling multiplies hidden states with the output matrix [V, d] itself, one tile at a time, so it needs the states after
the head's transform. Each architecture stores the transform in another place, listed in this module; causal models
have none.
"""

from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import Tensor, nn
from transformers.masking_utils import create_bidirectional_mask

from lsr_prod.errors import ConfigError
from lsr_prod.storage.formats.bundle_format import Attention


def _lm_head(model: Any, hidden: Tensor) -> Tensor:
    states: Tensor = model.lm_head.layer_norm(torch.nn.functional.gelu(model.lm_head.dense(hidden)))
    return states


def _predictions(model: Any, hidden: Tensor) -> Tensor:
    states: Tensor = model.cls.predictions.transform(hidden)
    return states


_TRANSFORMS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "AlbertForMaskedLM": lambda model, hidden: model.predictions.LayerNorm(
        model.predictions.activation(model.predictions.dense(hidden))
    ),
    "BertForMaskedLM": _predictions,
    "CamembertForMaskedLM": _lm_head,
    "DebertaV2ForMaskedLM": _predictions,
    "DistilBertForMaskedLM": lambda model, hidden: model.vocab_layer_norm(
        model.activation(model.vocab_transform(hidden))
    ),
    "ElectraForMaskedLM": lambda model, hidden: model.generator_predictions(hidden),
    "EuroBertForMaskedLM": lambda _, hidden: hidden,
    "GteForMaskedLM": _lm_head,
    "JinaEmbeddingsV3ForMaskedLM": _lm_head,
    "ModernBertForMaskedLM": lambda model, hidden: model.head(hidden),
    "MPNetForMaskedLM": _lm_head,
    "NomicBertForMaskedLM": _predictions,
    "RobertaForMaskedLM": _lm_head,
    "XLMRobertaForMaskedLM": _lm_head,
}
_CAUSAL = ("GPTNeoXForCausalLM", "LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
ARCHITECTURES = (*_TRANSFORMS, *_CAUSAL)


HEADLESS = tuple(name.replace("ForMaskedLM", "Model") for name in _TRANSFORMS)
"""Backbones without a vocabulary head, for other heads."""


def check_architecture(name: str, *, field: str, allowed: Collection[str] = ARCHITECTURES) -> None:
    """Refuse an architecture whose head this module does not support."""
    if name not in allowed:
        raise ConfigError(
            field, f"{name} is not a language model with a supported head", f"use one of {', '.join(allowed)}"
        )


def rename_head(config: Any) -> dict[str, str] | None:
    """Return new names of weights, as regular expressions, for a head with two layouts; the configuration is changed.

    The authors of DeBERTa name the weights of the same head in another way (``legacy: false``), also in checkpoints
    whose configuration does not say so. That layout has no output layer of its own, which pooling reads.
    """
    if config.model_type != "deberta-v2":
        return None
    config.legacy = True
    theirs, ours = r"^lm_predictions\.lm_head\.", "cls.predictions."
    return {rf"{theirs}bias": f"{ours}bias", rf"{theirs}(?=dense|LayerNorm)": f"{ours}transform."}


def is_causal(name: str) -> bool:
    """Return whether an architecture, given by its class name, is a decoder with causal attention."""
    return name in _CAUSAL


def hidden_states(
    model: Any,
    input_ids: Tensor,
    attention_mask: Tensor,
    token_type_ids: Tensor | None = None,
    *,
    attention: Attention = "bidirectional",
) -> Tensor:
    """Return the last hidden states of the backbone.

    Returns:
        [B, L, d].
    """
    if is_causal(type(model).__name__):
        return _decoder_states(model, input_ids, attention_mask, attention)
    # A single text has type 0 at every position, which is the default of the models.
    types = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
    hidden: Tensor = model.base_model(input_ids=input_ids, attention_mask=attention_mask, **types).last_hidden_state
    return hidden


def echo_inputs(input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
    """Repeat every text (papers/csplade, 4): ids and mask, int64 [B, 2 L]; padding stays between the copies."""
    return torch.cat((input_ids, input_ids), dim=1), torch.cat((attention_mask, attention_mask), dim=1)


def _decoder_states(model: Any, input_ids: Tensor, attention_mask: Tensor, attention: Attention) -> Tensor:
    length = input_ids.shape[1]
    if attention == "echo":
        input_ids, attention_mask = echo_inputs(input_ids, attention_mask)
    # Padding gets no position: the second copy continues after the first one, whatever the length of the batch.
    positions = (attention_mask.cumsum(dim=1) - 1).clamp(min=0)
    seen: Any = attention_mask
    if attention == "bidirectional":
        # Always pass a mask of all pairs: without a mask, attention falls back to the causal form.
        like = attention_mask[:, :, None].to(model.dtype)  # only shape, dtype and device are used
        seen = create_bidirectional_mask(model.config, like, attention_mask, allow_is_bidirectional_skip=False)
    hidden: Tensor = model.base_model(
        input_ids=input_ids, attention_mask=seen, position_ids=positions, use_cache=False
    ).last_hidden_state
    return hidden[:, -length:] if attention == "echo" else hidden


def head_input(model: Any, hidden: Tensor) -> Tensor:
    """Apply the head's transform: [B, L, hidden] -> [B, L, d] (d of Albert is the size of its embeddings).

    Causal models have no transform and return the hidden states.
    """
    if is_causal(type(model).__name__):
        return hidden
    states: Tensor = _TRANSFORMS[type(model).__name__](model, hidden)
    return states


def output_layer(model: Any) -> tuple[Tensor, Tensor | None]:
    """Return the output matrix [V, d], tied to the embeddings or not, and its bias [V] or None."""
    layer = model.get_output_embeddings()
    if not isinstance(layer, nn.Linear):
        raise ConfigError(
            "model",
            f"its output layer is a {type(layer).__name__}, not a linear layer",
            "train the head itself, or merge its adapter first",
        )
    return layer.weight, layer.bias


def transformer_layers(model: nn.Module) -> list[nn.Module]:
    """Return the layers of the backbone in order: the longest list of modules; empty if layers share weights."""
    lists = [list(module) for module in model.modules() if isinstance(module, nn.ModuleList)]
    return max(lists, key=len, default=[])
