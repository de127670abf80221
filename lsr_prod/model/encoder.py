"""``SparseEncoder``: a language model whose vocabulary head, pooled over a text, is the text's sparse vector."""

import copy
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from lsr_prod.errors import ConfigError
from lsr_prod.formats.card import EncoderCard, Kind
from lsr_prod.formats.sparse import SparseBatch
from lsr_prod.model import backbone, pooling
from lsr_prod.model.card_changes import change_card, check_attention
from lsr_prod.model.directory import write_model_directory
from lsr_prod.model.pooled_head import Maxima, find_maxima, pool_vocabulary
from lsr_prod.model.source import output_vocabulary, read_source
from lsr_prod.model.uncased import UncasedOutput

__all__ = ["SparseEncoder"]

log = logging.getLogger(__name__)


class SparseEncoder(nn.Module):
    """Text to sparse vectors, in torch.

    Attributes:
        model: the language model of transformers.
        tokenizer: its tokenizer, casing included.
        card: what decides a vector beside the weights.
        vocabulary: the V output terms.
        uncased: folds the terms of the head into them where the card asks for it, or None.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerFast,
        card: EncoderCard,
        vocabulary: list[str] | None = None,
    ) -> None:
        """Combine the parts; ``load`` reads them from a source.

        Args:
            model: a language model.
            tokenizer: its tokenizer.
            card: the encoder card.
            vocabulary: the terms of the head's rows where they are not the tokenizer's tokens.

        Raises:
            ConfigError: the architecture is none of ``backbone.ARCHITECTURES``, or the parts do not fit each other.
        """
        super().__init__()
        backbone.check_architecture(type(model).__name__, field="model")
        check_attention(replace(card, architecture=type(model).__name__))
        if (card.output_vocabulary == "words") != (vocabulary is not None):
            raise ConfigError(
                "vocabulary", f"the card's output vocabulary is {card.output_vocabulary}", "give terms with words only"
            )
        self.model, self.tokenizer, self.card = model, tokenizer, card
        rows = len(backbone.output_layer(model)[0])
        terms = output_vocabulary(tokenizer, rows) if vocabulary is None else vocabulary
        self.uncased = UncasedOutput(terms) if card.output_casing == "uncased" else None
        self.vocabulary = self.uncased.terms if self.uncased else terms
        if rows != len(terms) or len(self.vocabulary) != card.vocabulary_size:
            raise ConfigError(
                "model",
                f"its head has {rows} outputs for {len(terms)} terms",
                f"give it what the card says, {card.vocabulary_size} terms",
            )

    @classmethod
    def load(cls, source: str | Path, **card_overrides: Any) -> "SparseEncoder":
        """Read an encoder; weights come from safetensors only, and no code of the source is run.

        Args:
            source: a model directory of lsr_prod, a folder of sentence-transformers' SparseEncoder, a plain folder of
                a language model, or a Hugging Face id of one of them.
            **card_overrides: fields of the encoder card to set: casing, query_max_length, document_max_length,
                query_prompt, document_prompt, activation, pooled_tokens, attention, pooled_states, output_casing,
                query_encoder.

        Raises:
            ConfigError: nothing loadable is there, it has no trained vocabulary head, or an override is impossible.
        """
        return cls(*read_source(source, card_overrides)).eval()

    def changed(self, **card_changes: Any) -> "SparseEncoder":
        """An encoder with other fields of the card, as in ``load``, and the same weights; this one stays as it is.

        Raises:
            ConfigError: a change is impossible.
        """
        tokenizer = copy.deepcopy(self.tokenizer)
        words = self._words()
        terms = output_vocabulary(tokenizer, len(backbone.output_layer(self.model)[0])) if words is None else words
        card = change_card(self.card, card_changes, self.model.config, tokenizer, terms)
        return SparseEncoder(self.model, tokenizer, card, words).train(self.training)

    def clone(self) -> "SparseEncoder":
        """An encoder whose weights are a copy, for stages that change them; in evaluation mode."""
        return SparseEncoder(copy.deepcopy(self.model), self.tokenizer, self.card, self._words()).eval()

    def save(self, folder: str | Path) -> str:
        """Write the model directory, whole or not at all; sentence-transformers opens it too, where it can express it.

        Args:
            folder: absent, empty, or already this very model directory.

        Returns:
            Its digest (hex).

        Raises:
            ConfigError: the folder holds something else.
        """
        return write_model_directory(Path(folder), self.model, self.tokenizer, self.card, self._words())

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        token_type_ids: Tensor | None = None,
        found: Maxima | None = None,
    ) -> Tensor:
        """Vectors over the output vocabulary.

        Args:
            input_ids: int64 [B, L].
            attention_mask: int64 [B, L], 0 at padding.
            token_type_ids: int64 [B, L]; default zeros, which is what one text has.
            found: what ``find_maxima`` returned for the same batch, weights and dropout: the result is then its
                weights with a graph behind them, and the product with the output matrix is not made again.

        Returns:
            [B, V], at least 0; float32 even under autocast.
        """
        states, pooled = self.pooled_states(input_ids, attention_mask, token_type_ids)
        matrix, bias = backbone.output_layer(self.model)
        weights = pool_vocabulary(states, matrix, bias, pooled, activation=self.card.activation, found=found)
        return self.fold(weights)

    @torch.no_grad()
    def find_maxima(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Maxima:
        """The head's weights without a graph, and the token behind each: the first pass of two.

        They become vectors by ``fold``.

        Args:
            input_ids: int64 [B, L].
            attention_mask: int64 [B, L], 0 at padding.
            token_type_ids: int64 [B, L]; default zeros.
        """
        states, pooled = self.pooled_states(input_ids, attention_mask, token_type_ids)
        matrix, bias = backbone.output_layer(self.model)
        return find_maxima(states, matrix, bias, pooled, activation=self.card.activation)

    def fold(self, weights: Tensor) -> Tensor:
        """Weights of the head's terms, [B, rows of the output matrix], as vectors over the output vocabulary [B, V]."""
        vectors: Tensor = weights if self.uncased is None else self.uncased(weights)
        return vectors

    def pooled_states(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """What the output matrix is multiplied with, and which of it the maximum runs over.

        Args:
            input_ids: int64 [B, L].
            attention_mask: int64 [B, L], 0 at padding.
            token_type_ids: int64 [B, L]; default zeros.

        Returns:
            States [B, L, d] and bool [B, L]; where states are averaged, a text has one position.
        """
        hidden = backbone.hidden_states(
            self.model, input_ids, attention_mask, token_type_ids, attention=self.card.attention
        )
        pooled = pooling.pooled_positions(attention_mask, self.card.pooled_tokens)
        if self.card.pooled_states == "mean":
            hidden, pooled = pooling.mean_states(hidden, pooled)
        return backbone.head_input(self.model, hidden), pooled

    def encode(self, texts: Sequence[str], kind: Kind = "document", batch_size: int = 32) -> SparseBatch:
        """Encode texts without any cut by top-k; a text without a visible character is an empty vector.

        Args:
            texts: any number of texts, prompts excluded.
            kind: decides prompt and length.
            batch_size: texts of one forward pass.

        Returns:
            One vector a text, in order.

        Raises:
            ConfigError: they are queries, and the card says that these have no model.
        """
        self.card.check_model_encodes(kind)
        visible = [i for i, text in enumerate(texts) if text.strip()]
        ids = self._token_ids([texts[i] for i in visible], kind)
        by_length = sorted(range(len(ids)), key=lambda i: len(ids[i]))
        was_training = self.training
        self.eval()
        parts = [
            self._encode_batch([ids[i] for i in by_length[start : start + batch_size]])
            for start in range(0, len(ids), batch_size)
        ]
        self.train(was_training)
        return SparseBatch.concatenate(parts).spread([visible[i] for i in by_length], len(texts))

    def _words(self) -> list[str] | None:
        return self.vocabulary if self.card.output_vocabulary == "words" else None

    def _token_ids(self, texts: Sequence[str], kind: Kind) -> list[list[int]]:
        tokenizer = Tokenizer.from_str(self.tokenizer.backend_tokenizer.to_str())
        tokenizer.no_padding()
        tokenizer.enable_truncation(self.card.max_length(kind))
        prompt = self.card.prompt(kind)
        return [encoding.ids for encoding in tokenizer.encode_batch([prompt + text for text in texts])]

    @torch.inference_mode()
    def _encode_batch(self, rows: Sequence[Sequence[int]]) -> SparseBatch:
        length = max(len(row) for row in rows)
        input_ids = torch.full((len(rows), length), self.model.config.pad_token_id or 0)
        attention_mask = torch.zeros_like(input_ids)
        for i, row in enumerate(rows):
            input_ids[i, : len(row)] = torch.tensor(row)
            attention_mask[i, : len(row)] = 1
        device = self.model.device
        weights = self(input_ids.to(device), attention_mask.to(device)).float().cpu().numpy()  # [B, V]
        return SparseBatch.from_topk(np.broadcast_to(np.arange(weights.shape[1]), weights.shape), weights)
