"""What the stages on plain text minimise: how rows become a batch, and a batch a loss.

The loss of a step is a sum over what is predicted in it, divided by how much that is over all workers and parts: its
gradient does not depend on how a batch is shared.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerFast

from lsr_prod.config.language import (
    AdaptCausalSettings,
    AdaptMlmSettings,
    DistilHeadSettings,
    LanguageSettings,
    PretrainEmlmSettings,
)
from lsr_prod.model import SparseEncoder
from lsr_prod.model.backbone import head_input, hidden_states, output_layer
from lsr_prod.training.batches import pad
from lsr_prod.training.masked_tokens import Masked, mask_rates, mask_tokens, token_weights
from lsr_prod.training.masked_words import Which, mask_words
from lsr_prod.training.token_loss import token_losses
from lsr_prod.training_data.training_set import Example

__all__ = ["LanguageBatch", "LanguageModule", "LanguageObjective", "make_objective"]

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LanguageBatch:
    """What one worker trains on in one part of a step.

    Attributes:
        inputs: what the objective's ``sums`` takes, on the CPU.
        predicted: how much is predicted: tokens, or texts.
        texts: number of texts.
        tokens: of them, padding excluded.
    """

    inputs: tuple[Tensor, ...]
    predicted: int
    texts: int
    tokens: int


class LanguageObjective(Protocol):
    """How rows become a batch, and a batch a loss.

    Attributes:
        losses: names of the terms of the loss.
        figures: names of what is reported beside them.
        pools: the vectors of texts are made, not logits of single tokens.
    """

    losses: tuple[str, ...]
    figures: tuple[str, ...]
    pools: bool

    def batch(self, examples: Sequence[Example], rows: Rows, step: int, /) -> LanguageBatch:
        """The batch of some rows; a function of rows and step.

        Args:
            examples: n rows of a training set.
            rows: int64 [n], their numbers.
            step: its number.
        """

    def sums(self, encoder: SparseEncoder, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        """The sum to minimise over what is predicted, and of losses and figures in turn, those without a graph."""


class LanguageModule(nn.Module):
    """An objective around an encoder, whose forward pass is what the workers synchronise."""

    def __init__(self, encoder: SparseEncoder, objective: LanguageObjective) -> None:
        """The encoder is trained; whatever else the objective holds is not."""
        super().__init__()
        self.encoder = encoder
        self._objective = objective

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        """See ``LanguageObjective.sums``."""
        return self._objective.sums(self.encoder, *inputs)


def make_objective(
    stage: LanguageSettings, encoder: SparseEncoder, *, new_tokens: Sequence[int] = (), teacher: Path | None = None
) -> LanguageObjective:
    """The objective of a stage.

    Args:
        stage: its settings.
        encoder: what is trained.
        new_tokens: of ``adapt_mlm``, tokens that are masked more often.
        teacher: of ``distil_head``, a model directory.
    """
    match stage:
        case AdaptMlmSettings():
            return MaskedTokens(stage, encoder, new_tokens)
        case PretrainEmlmSettings():
            return MaskedWords(stage, encoder)
        case AdaptCausalSettings():
            return NextTokens(stage, encoder)
        case DistilHeadSettings():
            assert teacher is not None
            return TeacherVectors(stage, encoder, teacher)
        case _:
            raise TypeError(f"{type(stage).__name__} trains on no text")


class MaskedTokens:
    """Masked language modelling with the overlap-aware curriculum (vocabulary-transfer, 4.2.3)."""

    losses: tuple[str, ...] = ("masked_tokens",)
    figures: tuple[str, ...] = ("accuracy",)
    pools = False

    def __init__(self, stage: AdaptMlmSettings, encoder: SparseEncoder, new_tokens: Sequence[int]) -> None:
        """Weigh every token by whether it is new."""
        tokenizer = encoder.tokenizer
        assert tokenizer.mask_token_id is not None
        self._mask_id, self._ordinary = int(tokenizer.mask_token_id), _ordinary(tokenizer)
        size = len(output_layer(encoder.model)[0])
        special = [one for one in tokenizer.all_special_ids if one < size]
        self._weights = token_weights(size, new_tokens, special, stage.new_token_weight)
        self._rate, self._seed, self._pad = stage.mask_rate, stage.seed, _padding(encoder)

    def batch(self, examples: Sequence[Example], rows: Rows, step: int, /) -> LanguageBatch:
        """Texts with some tokens masked."""
        texts = pad([example.documents[0] for example in examples], self._pad)
        ids, present = texts.input_ids.numpy(), texts.attention_mask.numpy()
        rates = mask_rates(np.where(present > 0, self._weights[ids], 0.0), self._rate)
        masked = mask_tokens(
            ids, rates, rows, seed=self._seed, step=step, mask_id=self._mask_id, ordinary=self._ordinary
        )  # fmt: skip
        return _masked_batch(masked, texts.attention_mask)

    def sums(self, encoder: SparseEncoder, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        """The cross entropy of what was masked, and how often it was found."""
        return _masked_sums(encoder, *inputs)


class MaskedWords:
    """Expanded masked language modelling (papers/esplade-pretraining, appendix B.2)."""

    losses: tuple[str, ...] = ("masked_words",)
    figures: tuple[str, ...] = ("accuracy",)
    pools = False

    def __init__(self, stage: PretrainEmlmSettings, encoder: SparseEncoder, masked: Which = "all") -> None:
        """Mask words.

        Args:
            stage: the settings.
            encoder: what is trained.
            masked: sub-tokens of a word that are masked; a validation masks some only, and always (3.2).
        """
        tokenizer = encoder.tokenizer
        assert tokenizer.mask_token_id is not None
        self._mask_id, self._ordinary = int(tokenizer.mask_token_id), _ordinary(tokenizer)
        self._stage, self._masked, self._pad = stage, masked, _padding(encoder)

    def batch(self, examples: Sequence[Example], rows: Rows, step: int, /) -> LanguageBatch:
        """Texts with some words masked."""
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
        """The cross entropy of the masked words, and how often they were found."""
        return _masked_sums(encoder, *inputs)


class NextTokens:
    """Next-token prediction by logits and by their activations (papers/csplade, 3.2)."""

    losses: tuple[str, ...] = ("next_token", "activated_next_token")
    figures: tuple[str, ...] = ("accuracy",)
    pools = False

    def __init__(self, stage: AdaptCausalSettings, encoder: SparseEncoder) -> None:
        """Predict the token behind each."""
        self._relu_weight, self._pad = stage.relu_weight, _padding(encoder)

    def batch(self, examples: Sequence[Example], _rows: Rows, _step: int, /) -> LanguageBatch:
        """Blocks of text, each token the label of the one before it."""
        texts = pad([example.documents[0] for example in examples], self._pad)
        ids, mask = texts.input_ids, texts.attention_mask
        has_next = torch.zeros_like(mask)
        has_next[:, :-1] = mask[:, 1:]
        places = has_next.flatten().nonzero()[:, 0]
        labels = ids.flatten()[places + 1]
        return LanguageBatch((ids, mask, places, labels), len(places), len(ids), int(mask.sum()))

    def sums(self, encoder: SparseEncoder, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Both cross entropies, and how often the largest logit is the token's."""
        return _token_sums(encoder, *inputs, attention="causal", relu_weight=self._relu_weight)


class TeacherVectors:
    """A teacher's sparse vectors are learnt (vocabulary-transfer, 6.3); which distance is ours to choose."""

    losses: tuple[str, ...] = ("distance",)
    figures: tuple[str, ...] = ("l0_document", "l0_teacher")
    pools = True

    def __init__(self, stage: DistilHeadSettings, encoder: SparseEncoder, teacher: Path) -> None:
        """Read the teacher; it is never trained."""
        self._loss, self._pad = stage.loss, _padding(encoder)
        self._teacher = SparseEncoder.load(teacher).requires_grad_(requires_grad=False).eval()
        self._teacher_pad = _padding(self._teacher)

    def batch(self, examples: Sequence[Example], _rows: Rows, _step: int, /) -> LanguageBatch:
        """Texts as the model reads them and as the teacher does."""
        texts = pad([example.documents[0] for example in examples], self._pad)
        taught = pad([example.query for example in examples], self._teacher_pad)
        inputs = (texts.input_ids, texts.attention_mask, taught.input_ids, taught.attention_mask)
        return LanguageBatch(inputs, len(examples), len(examples), int(texts.attention_mask.sum()))

    def sums(self, encoder: SparseEncoder, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        """The distance of each text's vectors, and their active terms."""
        ids, mask, teacher_ids, teacher_mask = inputs
        with torch.no_grad():
            wanted = self._teacher.to(ids.device)(teacher_ids, teacher_mask)  # [B, V]
        vectors = encoder(ids, mask)
        if self._loss == "mse":
            total = (vectors - wanted).square().sum()
        else:
            total = (1 - nn.functional.cosine_similarity(vectors, wanted, dim=1)).sum()
        active = [torch.count_nonzero(one).to(total.dtype) for one in (vectors, wanted)]
        return total, torch.stack([total.detach(), *active])


def _masked_batch(masked: Masked, mask: Tensor) -> LanguageBatch:
    ids, places, labels = (torch.from_numpy(one) for one in (masked.input_ids, masked.places, masked.labels))
    return LanguageBatch((ids, mask, places, labels), len(places), len(ids), int(mask.sum()))


def _masked_sums(encoder: SparseEncoder, *inputs: Tensor) -> tuple[Tensor, Tensor]:
    total, parts = _token_sums(encoder, *inputs, attention="bidirectional", relu_weight=0.0)
    return total, parts[[0, 2]]


def _token_sums(
    encoder: SparseEncoder,
    ids: Tensor,
    mask: Tensor,
    places: Tensor,
    labels: Tensor,
    *,
    attention: Literal["bidirectional", "causal"],
    relu_weight: float,
) -> tuple[Tensor, Tensor]:
    """Losses of the tokens at some places of a batch; the head sees no others."""
    hidden = hidden_states(encoder.model, ids, mask, attention=attention)
    states = head_input(encoder.model, hidden.flatten(0, 1).index_select(0, places))  # [M, d]
    return token_losses(states, *output_layer(encoder.model), labels, relu_weight=relu_weight)


def _ordinary(tokenizer: PreTrainedTokenizerFast) -> npt.NDArray[np.int64]:
    """Ids of all tokens that are not special."""
    special = set(tokenizer.all_special_ids)
    return np.array(sorted(set(tokenizer.get_vocab().values()) - special), np.int64)


def _padding(encoder: SparseEncoder) -> int:
    return int(encoder.model.config.pad_token_id or 0)
