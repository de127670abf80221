"""Masked language modeling of tokens, and expanded masked language modeling of words."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from lsr_prod.config.language import AdaptMlmSettings, PretrainEmlmSettings
from lsr_prod.model import SparseEncoder
from lsr_prod.model.backbone import output_layer
from lsr_prod.training.batches import pad
from lsr_prod.training.language.objective import LanguageBatch, Rows, ordinary, padding, token_sums
from lsr_prod.training.language.token_masks import Masked, mask_rates, mask_tokens, token_weights
from lsr_prod.training.language.word_masks import Which, mask_words
from lsr_prod.training_data.training_set import Example


class MaskedTokens:
    """Masked language modeling with the overlap-aware curriculum (vocabulary-transfer, 4.2.3)."""

    losses: tuple[str, ...] = ("masked_tokens",)
    figures: tuple[str, ...] = ("accuracy",)
    pools = False

    def __init__(self, stage: AdaptMlmSettings, encoder: SparseEncoder, new_tokens: Sequence[int]) -> None:
        """Compute the mask weight of every token; new tokens are masked more often."""
        tokenizer = encoder.tokenizer
        assert tokenizer.mask_token_id is not None
        self._mask_id, self._ordinary = int(tokenizer.mask_token_id), ordinary(tokenizer)
        size = len(output_layer(encoder.model)[0])
        special = [one for one in tokenizer.all_special_ids if one < size]
        self._weights = token_weights(size, new_tokens, special, stage.new_token_weight)
        self._rate, self._seed, self._pad = stage.mask_rate, stage.seed, padding(encoder)

    def batch(self, examples: Sequence[Example], rows: Rows, step: int, /) -> LanguageBatch:
        """Return texts with masked tokens."""
        texts = pad([example.documents[0] for example in examples], self._pad)
        ids, present = texts.input_ids.numpy(), texts.attention_mask.numpy()
        rates = mask_rates(np.where(present > 0, self._weights[ids], 0.0), self._rate)
        masked = mask_tokens(
            ids, rates, rows, seed=self._seed, step=step, mask_id=self._mask_id, ordinary=self._ordinary
        )  # fmt: skip
        return _masked_batch(masked, texts.attention_mask)

    def sums(self, encoder: SparseEncoder, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the cross entropy of the masked tokens, and the number predicted correctly."""
        return _masked_sums(encoder, *inputs)


class MaskedWords:
    """Expanded masked language modeling (papers/esplade-pretraining, appendix B.2)."""

    losses: tuple[str, ...] = ("masked_words",)
    figures: tuple[str, ...] = ("accuracy",)
    pools = False

    def __init__(self, stage: PretrainEmlmSettings, encoder: SparseEncoder, masked: Which = "all") -> None:
        """Create the objective."""
        tokenizer = encoder.tokenizer
        assert tokenizer.mask_token_id is not None
        self._mask_id, self._ordinary = int(tokenizer.mask_token_id), ordinary(tokenizer)
        self._stage, self._masked, self._pad = stage, masked, padding(encoder)

    def batch(self, examples: Sequence[Example], rows: Rows, step: int, /) -> LanguageBatch:
        """Return texts with masked words."""
        texts = pad([example.documents[0] for example in examples], self._pad)
        masked = mask_words(
            texts.input_ids.numpy(),
            [example.documents[1].reshape(-1, 3) for example in examples],
            rows,
            share=self._stage.mask_share,
            seed=self._stage.seed,
            step=step,
            mask_id=self._mask_id,
            ordinary=self._ordinary,
            masked=self._masked,
            labelled=self._stage.labelled,
            always=self._masked != "all",
        )
        return _masked_batch(masked, texts.attention_mask)

    def sums(self, encoder: SparseEncoder, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the cross entropy of the masked words, and the number predicted correctly."""
        return _masked_sums(encoder, *inputs)


def _masked_batch(masked: Masked, mask: Tensor) -> LanguageBatch:
    ids, places, labels = (torch.from_numpy(one) for one in (masked.input_ids, masked.places, masked.labels))
    return LanguageBatch((ids, mask, places, labels), len(places), len(ids), int(mask.sum()))


def _masked_sums(encoder: SparseEncoder, *inputs: Tensor) -> tuple[Tensor, Tensor]:
    total, parts = token_sums(encoder, *inputs, attention="bidirectional", relu_weight=0.0)
    return total, parts[[0, 2]]
