"""The models of an encoder: one, or one for documents and one for queries."""

from typing import Literal

from torch import nn
from transformers import PreTrainedModel

from lsr_prod.model import SparseEncoder


def models_of(encoder: SparseEncoder) -> list[PreTrainedModel]:
    """Return the model of an encoder, and that of its separate query encoder."""
    return [encoder.model] if encoder.queries is None else [encoder.model, encoder.queries.model]


def trained_module(encoder: SparseEncoder) -> nn.Module:
    """Return the module whose parameters are trained and stored in checkpoints.

    With a separate query encoder, names of parameters begin with ``document.`` or ``query.``.
    """
    if encoder.queries is None:
        return encoder.model
    return nn.ModuleDict({"document": encoder.model, "query": encoder.queries.model})


def freeze_side(encoder: SparseEncoder, trained: Literal["both", "query", "document"]) -> PreTrainedModel | None:
    """Freeze the document encoder, the query encoder or none, in place; return the frozen model."""
    if encoder.queries is None or trained == "both":
        return None
    frozen = encoder.model if trained == "query" else encoder.queries.model
    frozen.requires_grad_(requires_grad=False)
    return frozen
