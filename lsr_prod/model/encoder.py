"""``SparseEncoder``: a masked language model whose vocabulary head, pooled over a text, is the text's sparse vector."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from lsr_prod.formats.card import EncoderCard, Kind
from lsr_prod.formats.sparse import SparseBatch
from lsr_prod.model import backbone, pooling
from lsr_prod.model.directory import write_model_directory
from lsr_prod.model.source import output_vocabulary, read_source

__all__ = ["SparseEncoder"]

log = logging.getLogger(__name__)


class SparseEncoder(nn.Module):
    """Text to sparse vectors, in torch.

    Attributes:
        model: the masked language model of transformers.
        tokenizer: its tokenizer, casing included.
        card: what decides a vector beside the weights.
        vocabulary: the V output terms.
    """

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, card: EncoderCard) -> None:
        """Combine the parts; ``load`` reads them from a source.

        Raises:
            ConfigError: the architecture is none of ``backbone.ARCHITECTURES``.
        """
        super().__init__()
        backbone.check_architecture(type(model).__name__, field="model")
        self.model, self.tokenizer, self.card = model, tokenizer, card
        self.vocabulary = output_vocabulary(tokenizer, card.vocabulary_size)

    @classmethod
    def load(cls, source: str | Path, **card_overrides: Any) -> "SparseEncoder":
        """Read an encoder; weights come from safetensors only, and no code of the source is run.

        Args:
            source: a model directory of lsr_prod, a folder of sentence-transformers' SparseEncoder, a plain folder of
                a masked language model, or a Hugging Face id of one of them.
            **card_overrides: fields of the encoder card to set: casing, query_max_length, document_max_length,
                query_prompt, document_prompt, activation, pooled_tokens.

        Raises:
            ConfigError: nothing loadable is there, it has no trained vocabulary head, or an override is impossible.
        """
        return cls(*read_source(source, card_overrides)).eval()

    def save(self, folder: str | Path) -> str:
        """Write the model directory, whole or not at all; sentence-transformers opens it too.

        Args:
            folder: absent, empty, or already this very model directory.

        Returns:
            Its digest (hex).

        Raises:
            ConfigError: the folder holds something else.
        """
        return write_model_directory(Path(folder), self.model, self.tokenizer, self.card)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """Vectors over the output vocabulary.

        Args:
            input_ids: int64 [B, L].
            attention_mask: int64 [B, L], 0 at padding.
            token_type_ids: int64 [B, L]; default zeros, which is what one text has.

        Returns:
            float [B, V], at least 0.
        """
        hidden = backbone.hidden_states(self.model, input_ids, attention_mask, token_type_ids)
        pooled = pooling.pooled_positions(attention_mask, self.card.pooled_tokens)
        # [B, L, d] -> [B, L, V] -> [B, V]
        logits = backbone.vocabulary_logits(self.model, pooling.fill_unpooled(hidden, pooled))
        return pooling.activate(logits.amax(dim=1), pooled, self.card.activation)

    def encode(self, texts: Sequence[str], kind: Kind = "document", batch_size: int = 32) -> SparseBatch:
        """Encode texts without any cut by top-k; a text without a visible character is an empty vector.

        Args:
            texts: any number of texts, prompts excluded.
            kind: decides prompt and length.
            batch_size: texts of one forward pass.

        Returns:
            One vector a text, in order.
        """
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
