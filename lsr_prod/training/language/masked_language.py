"""Masked language modeling of tokens, and expanded masked language modeling of words."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import torch

from lsr_prod.config.language import AdaptMlmSettings, PretrainEmlmSettings
from lsr_prod.model import SparseEncoder, backbone
from lsr_prod.training import batches, twins
from lsr_prod.training.data.training_set import Example
from lsr_prod.training.language.objective import LanguageBatch, Rows, ordinary, padding, token_sums

# Masks of masked language modeling: selection of tokens and their replacements (BERT's 80/10/10).
#
# All random numbers are functions of seed, step, row and position: masks do not depend on the number of workers.

_CHOICE, _FATE, _RANDOM = 11, 12, 13  # purpose of random numbers
_HIDDEN, _REPLACED = 0.8, 0.9  # below: mask token, random token; above: unchanged (Devlin et al., 2019)


@dataclass(frozen=True, slots=True)
class Masked:
    """Masked batch."""

    input_ids: np.typing.NDArray[np.int64]  # int64 [B, L]
    places: np.typing.NDArray[np.int64]  # int64 [M], positions to predict, in the flattened batch
    labels: np.typing.NDArray[np.int64]  # int64 [M], tokens or terms to predict


def mask_rates(weights: np.typing.NDArray[np.float64], rate: float) -> np.typing.NDArray[np.float64]:
    """Return the mask probability of each token: proportional to its weight, on average ``rate`` per text; [B, L].

    The weights are omega of vocabulary-transfer, 4.2.3; that the average holds for each text is our choice.
    Probabilities above 1 are cut to 1, and the remainder is distributed over the rest of the text.
    """
    maskable = weights > 0
    wanted = rate * maskable.sum(axis=1, keepdims=True)
    certain = np.zeros_like(maskable)
    while True:
        free = np.where(certain, 0.0, weights)
        total = free.sum(axis=1, keepdims=True)
        left = wanted - certain.sum(axis=1, keepdims=True)
        rates = np.where(certain, 1.0, free * left / np.where(total > 0, total, 1.0))
        above = rates > 1
        if not above.any():
            return rates
        certain |= above


@dataclass(frozen=True, slots=True)
class Masking:
    """Rules by which the chosen tokens of a batch are replaced."""

    rows: np.typing.NDArray[np.int64]  # int64 [B], numbers of the rows
    step: int  # number of the step
    seed: int  # of all steps
    mask_id: int  # the mask token
    ordinary: np.typing.NDArray[np.int64]  # the tokens that replace others

    def hide(
        self,
        input_ids: np.typing.NDArray[np.int64],
        chosen: np.typing.NDArray[np.bool_],
        groups: np.typing.NDArray[np.int64] | None = None,
    ) -> np.typing.NDArray[np.int64]:
        """Replace chosen tokens: 80 % by the mask token, 10 % by a random token; 10 % are unchanged; int64 [B, L]."""
        rows, positions = self.rows[:, None], np.arange(input_ids.shape[1])
        kinds = uniform(self.seed, _FATE, self.step, rows, positions if groups is None else groups)
        drawn = twins.draw(self.seed, _RANDOM, self.step, rows, positions) % np.uint64(len(self.ordinary))
        changed = np.where(kinds < _REPLACED, self.ordinary[drawn], input_ids)
        return np.where(chosen, np.where(kinds < _HIDDEN, self.mask_id, changed), input_ids)


def mask_tokens(
    input_ids: np.typing.NDArray[np.int64], rates: np.typing.NDArray[np.float64], masking: Masking
) -> Masked:
    """Mask each token with its probability."""
    positions = np.arange(input_ids.shape[1])
    chosen = uniform(masking.seed, _CHOICE, masking.step, masking.rows[:, None], positions) < rates
    places = np.flatnonzero(chosen)
    return Masked(masking.hide(input_ids, chosen), places, input_ids.reshape(-1)[places])


def uniform(*names: int | np.typing.NDArray[np.int64]) -> np.typing.NDArray[np.float64]:
    """Return a number in [0, 1) for every combination of names; see ``twins.draw``."""
    return (twins.draw(*names) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def token_weights(
    size: int, new: Iterable[int], special: Iterable[int], weight: float
) -> np.typing.NDArray[np.float64]:
    """Return omega of every token, float64 [size]: ``weight`` for new tokens, 0 for special tokens, otherwise 1."""
    omega = np.ones(size)
    omega[list(new)] = weight
    omega[list(special)] = 0.0
    return omega


# Masks of expanded masked language modeling (papers/esplade-pretraining, appendix B.2).
#
# A fixed number of words is chosen per text: 15 % of those that are output terms, at least one. All sub-tokens of a
# chosen word are masked and predict the word. All sub-tokens of a word are replaced in the same way (mask token, random
# token, unchanged); this is our choice.

_WORD = 14  # purpose of random numbers

Words = np.typing.NDArray[np.int32]
"""int32 [w, 3]: start, end (exclusive) and output term of each word of a text that is an output term."""

Which = Literal["all", "first", "later"]


def masked_count(words: int, share: float) -> int:
    """Return the number of masked words of a text: ``share`` of them, rounded, at least one."""
    return max(1, int(share * words + 0.5))


def mask_words(
    input_ids: np.typing.NDArray[np.int64],
    words: Sequence[Words],
    masking: Masking,
    *,
    share: float,
    masked: Which = "all",
    labelled: Literal["all", "first"] = "all",
) -> Masked:
    """Choose words and mask their sub-tokens; labels are output terms."""
    groups = np.full(input_ids.shape, -1, np.int64)
    places: list[int] = []
    labels: list[int] = []
    for text, (spans, row) in enumerate(zip(words, masking.rows.tolist(), strict=True)):
        for word in _chosen(len(spans), share, masking.seed, masking.step, row):
            first, end, term = spans[word].tolist()
            start, stop = first + (masked == "later"), first + 1 if masked == "first" else end
            groups[text, start:stop] = word
            last = min(start + 1, stop) if labelled == "first" else stop
            places += range(text * input_ids.shape[1] + start, text * input_ids.shape[1] + last)
            labels += [term] * (last - start)
    chosen = groups >= 0
    whole = masked == "all"
    hidden = masking.hide(input_ids, chosen, groups) if whole else np.where(chosen, masking.mask_id, input_ids)
    return Masked(hidden, np.array(places, np.int64), np.array(labels, np.int64))


def _chosen(words: int, share: float, seed: int, step: int, row: int) -> list[int]:
    """Return a random choice of a text's words, in increasing order."""
    if not words:
        return []
    order = np.argsort(twins.draw(seed, _WORD, step, row, np.arange(words)), kind="stable")
    return sorted(order[: masked_count(words, share)].tolist())


class _Prediction:
    """The common part of both objectives: texts with masked tokens, and the cross entropy at the masked places."""

    losses: tuple[str, ...]
    figures: tuple[str, ...] = ("accuracy",)
    pools = False

    def __init__(self, stage: AdaptMlmSettings | PretrainEmlmSettings, encoder: SparseEncoder) -> None:
        tokenizer = encoder.tokenizer
        assert tokenizer.mask_token_id is not None
        self._masking = partial(
            Masking, seed=stage.seed, mask_id=int(tokenizer.mask_token_id), ordinary=ordinary(tokenizer)
        )
        self._pad = padding(encoder)

    def batch(self, examples: Sequence[Example], rows: Rows, step: int, /) -> LanguageBatch:
        """Return texts with masked tokens."""
        texts = batches.pad([example.documents[0] for example in examples], self._pad)
        masked, mask = self._mask(texts, examples, self._masking(rows, step)), texts.attention_mask
        ids, places, labels = (torch.from_numpy(one) for one in (masked.input_ids, masked.places, masked.labels))
        return LanguageBatch((ids, mask, places, labels), len(places), len(ids), int(mask.sum()))

    def _mask(self, texts: batches.TokenBatch, examples: Sequence[Example], masking: Masking) -> Masked:
        raise NotImplementedError

    def sums(self, encoder: SparseEncoder, *inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the cross entropy at the masked places, and the number predicted correctly."""
        total, parts = token_sums(encoder, *inputs, attention="bidirectional", relu_weight=0.0)
        return total, parts[[0, 2]]


class MaskedTokens(_Prediction):
    """Masked language modeling with the overlap-aware curriculum (vocabulary-transfer, 4.2.3)."""

    losses: tuple[str, ...] = ("masked_tokens",)

    def __init__(self, stage: AdaptMlmSettings, encoder: SparseEncoder, new_tokens: Sequence[int]) -> None:
        super().__init__(stage, encoder)
        size = len(backbone.output_layer(encoder.model)[0])
        special = [one for one in encoder.tokenizer.all_special_ids if one < size]
        self._weights = token_weights(size, new_tokens, special, stage.new_token_weight)
        self._rate = stage.mask_rate

    def _mask(self, texts: batches.TokenBatch, examples: Sequence[Example], masking: Masking) -> Masked:  # noqa: ARG002
        ids, present = texts.input_ids.numpy(), texts.attention_mask.numpy()
        return mask_tokens(ids, mask_rates(np.where(present > 0, self._weights[ids], 0.0), self._rate), masking)


class MaskedWords(_Prediction):
    """Expanded masked language modeling (papers/esplade-pretraining, appendix B.2)."""

    losses: tuple[str, ...] = ("masked_words",)

    def __init__(self, stage: PretrainEmlmSettings, encoder: SparseEncoder, masked: Which = "all") -> None:
        super().__init__(stage, encoder)
        self._stage, self._masked = stage, masked

    def _mask(self, texts: batches.TokenBatch, examples: Sequence[Example], masking: Masking) -> Masked:
        ids, words = texts.input_ids.numpy(), [example.documents[1].reshape(-1, 3) for example in examples]
        share, labelled = self._stage.mask_share, self._stage.labelled
        return mask_words(ids, words, masking, share=share, masked=self._masked, labelled=labelled)
