"""The two halves of a masked language model: the backbone that makes hidden states, and its vocabulary head.

Pooling needs them apart, because it works between the two. Where the head sits differs from architecture to
architecture; the table in this module says where.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from lsr_prod.errors import ConfigError

__all__ = ["ARCHITECTURES", "check_architecture", "hidden_states", "vocabulary_logits"]

_HEADS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "AlbertForMaskedLM": lambda model, hidden: model.predictions(hidden),
    "BertForMaskedLM": lambda model, hidden: model.cls(hidden),
    "DistilBertForMaskedLM": lambda model, hidden: model.vocab_projector(
        model.vocab_layer_norm(model.activation(model.vocab_transform(hidden)))
    ),
    "ModernBertForMaskedLM": lambda model, hidden: model.decoder(model.head(hidden)),
    "RobertaForMaskedLM": lambda model, hidden: model.lm_head(hidden),
}
ARCHITECTURES = tuple(_HEADS)


def check_architecture(name: str, *, field: str) -> None:
    """Refuse a model whose head this module does not know.

    Args:
        name: class name, for example ``BertForMaskedLM``.
        field: the setting that names the model, for the error.

    Raises:
        ConfigError: the architecture is unknown.
    """
    if name not in _HEADS:
        raise ConfigError(
            field, f"{name} is no masked language model with a known head", f"use one of {', '.join(ARCHITECTURES)}"
        )


def hidden_states(
    model: Any, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
) -> Tensor:
    """The backbone's last layer.

    Args:
        model: a masked language model of transformers.
        input_ids: int64 [B, L].
        attention_mask: int64 [B, L], 0 at padding.
        token_type_ids: int64 [B, L], for the architectures that have them; default zeros.

    Returns:
        [B, L, d].
    """
    # A single text has type 0 throughout, so the models' own default is right and other architectures need no case.
    types = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
    hidden: Tensor = model.base_model(input_ids=input_ids, attention_mask=attention_mask, **types).last_hidden_state
    return hidden


def vocabulary_logits(model: Any, hidden: Tensor) -> Tensor:
    """The vocabulary head: [B, L, d] -> [B, L, V]."""
    logits: Tensor = _HEADS[type(model).__name__](model, hidden)
    return logits
