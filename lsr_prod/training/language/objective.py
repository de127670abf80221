"""Interface of objectives on plain text: from rows to a batch, and from a batch to a loss.

The loss of a step is a sum over its predictions, divided by their number over all workers and parts: its gradient does
not depend on how a batch is shared.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn
from transformers import PreTrainedTokenizerFast

from lsr_prod.model import SparseEncoder
from lsr_prod.model.backbone import head_input, hidden_states, output_layer
from lsr_prod.training.language.token_loss import token_losses
from lsr_prod.training_data.training_set import Example

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LanguageBatch:
    """Batch of one worker for one part of a step.

    Attributes:
        inputs: arguments of the objective's ``sums``, on the CPU.
        predicted: number of predictions: tokens, or texts.
        texts: number of texts.
        tokens: tokens of the texts, padding excluded.
    """

    inputs: tuple[Tensor, ...]
    predicted: int
    texts: int
    tokens: int


class LanguageObjective(Protocol):
    """Objective on plain text.

    Attributes:
        losses: names of the terms of the loss.
        figures: names of further reported figures.
        pools: vectors of texts are computed, not logits of single tokens.
    """

    losses: tuple[str, ...]
    figures: tuple[str, ...]
    pools: bool

    def batch(self, examples: Sequence[Example], rows: Rows, step: int, /) -> LanguageBatch:
        """Return the batch of some rows; a pure function of rows and step."""

    def sums(self, encoder: SparseEncoder, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the sum to minimize over all predictions, and the sums of losses and figures, without graph."""


class LanguageModule(nn.Module):
    """Module around encoder and objective, so that DDP and FSDP2 synchronize the whole forward pass."""

    def __init__(self, encoder: SparseEncoder, objective: LanguageObjective) -> None:
        """Register the encoder for training; modules of the objective are not trained."""
        super().__init__()
        self.encoder = encoder
        self._objective = objective

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return ``LanguageObjective.sums``."""
        return self._objective.sums(self.encoder, *inputs)


def token_sums(
    encoder: SparseEncoder,
    ids: Tensor,
    mask: Tensor,
    places: Tensor,
    labels: Tensor,
    *,
    attention: Literal["bidirectional", "causal"],
    relu_weight: float,
) -> tuple[Tensor, Tensor]:
    """Return losses of the tokens at some places of a batch; the head is applied to no others."""
    hidden = hidden_states(encoder.model, ids, mask, attention=attention)
    states = head_input(encoder.model, hidden.flatten(0, 1).index_select(0, places))  # [M, d]
    return token_losses(states, *output_layer(encoder.model), labels, relu_weight=relu_weight)


def ordinary(tokenizer: PreTrainedTokenizerFast) -> npt.NDArray[np.int64]:
    """Return the ids of all tokens that are not special."""
    special = set(tokenizer.all_special_ids)
    return np.array(sorted(set(tokenizer.get_vocab().values()) - special), np.int64)


def padding(encoder: SparseEncoder) -> int:
    """Return the id of the padding token."""
    return int(encoder.model.config.pad_token_id or 0)
