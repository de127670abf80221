"""Next-token prediction by a causal language model."""

from collections.abc import Sequence

import torch
from torch import Tensor

from lsr_prod.config.language import AdaptCausalSettings
from lsr_prod.model import SparseEncoder
from lsr_prod.training.batches import pad
from lsr_prod.training.language.objective import LanguageBatch, Rows, padding, token_sums
from lsr_prod.training_data.training_set import Example


class NextTokens:
    """Next-token prediction with logits and with their activations (papers/csplade, 3.2)."""

    losses: tuple[str, ...] = ("next_token", "activated_next_token")
    figures: tuple[str, ...] = ("accuracy",)
    pools = False

    def __init__(self, stage: AdaptCausalSettings, encoder: SparseEncoder) -> None:
        """Create the objective."""
        self._relu_weight, self._pad = stage.relu_weight, padding(encoder)

    def batch(self, examples: Sequence[Example], _rows: Rows, _step: int, /) -> LanguageBatch:
        """Return blocks of text; the label of a token is the next token."""
        texts = pad([example.documents[0] for example in examples], self._pad)
        ids, mask = texts.input_ids, texts.attention_mask
        has_next = torch.zeros_like(mask)
        has_next[:, :-1] = mask[:, 1:]
        places = has_next.flatten().nonzero()[:, 0]
        labels = ids.flatten()[places + 1]
        return LanguageBatch((ids, mask, places, labels), len(places), len(ids), int(mask.sum()))

    def sums(self, encoder: SparseEncoder, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return both cross entropies, and the number of tokens predicted correctly."""
        return token_sums(encoder, *inputs, attention="causal", relu_weight=self._relu_weight)
