"""``SparseEncoder``: a language model whose head, pooled over the tokens of a text, gives a sparse vector."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from lsr_prod import errors, logs
from lsr_prod.model import appended_heads, backbone, card_update, loading, pooling
from lsr_prod.model.autoencoder import autoencoder_of, latent_weights
from lsr_prod.model.directory import ModelParts, write_model_directory
from lsr_prod.model.pooled_head import PooledArgmax, find_argmax, pool_vocabulary
from lsr_prod.model.token_weights import pool_token_weights, sparse_linear, unweighted_tokens
from lsr_prod.storage.formats import bundle_format, sparse

log = logs.get_log(__name__)


class SparseEncoder(torch.nn.Module):
    """Encoder of texts as sparse vectors, in torch.

    Examples:
        >>> from lsr_prod import SparseEncoder
        >>> encoder = SparseEncoder.load("model")  # a model directory, or a checkpoint
        >>> vectors = encoder.encode(["a lock"], kind="query")
        >>> [encoder.vocabulary[term] for term in vectors.row(0)[0][:2]]
        ['lock', 'locks']

    Attributes:
        model: the language model of transformers.
        tokenizer: its tokenizer, including the casing.
        card: all settings that decide a vector, apart from the weights.
        vocabulary: the V output terms.
        uncased: folds the terms of the head into the output terms; None if ``output_casing`` is ``all``.
        query_weights: float32 [V] on the CPU, learned weights of query terms, or with ``query_encoder: idf`` those that
            training used, which only sentence-transformers reads; None: not trained, or the model encodes queries.
        queries: separate encoder of queries, with the same output terms; None: this model encodes queries too, or no
            model does.
        heads: heads of appended tokens; None unless ``pooled_tokens`` is ``appended``.
    """

    unweighted: torch.Tensor

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerFast,
        card: bundle_format.EncoderCard,
        vocabulary: list[str] | None = None,
        query_weights: torch.Tensor | None = None,
        queries: "SparseEncoder | None" = None,
        heads: appended_heads.AppendedHeads | None = None,
    ) -> None:
        """Combine the parts; ``load`` reads them.

        Args:
            model: a language model.
            tokenizer: its tokenizer.
            card: the encoder card.
            vocabulary: the terms of the head's rows if they are not the tokenizer's tokens.
            query_weights: float32 [V], learned weights of query terms.
            queries: a separate query encoder, if the card says ``query_encoder: separate``.
            heads: heads of appended tokens; default, if the card has some: a new split of the output matrix.

        Raises:
            ConfigError: the architecture is not in ``backbone.ARCHITECTURES``, or the parts do not fit together.
        """
        super().__init__()
        allowed = backbone.ARCHITECTURES if card.head == "vocabulary" else backbone.HEADLESS
        backbone.check_architecture(type(model).__name__, field="model", allowed=allowed)
        card_update.check_attention(replace(card, architecture=type(model).__name__))
        if (card.output_vocabulary == "words") != (vocabulary is not None):
            raise errors.ConfigError(
                "vocabulary", f"the card's output vocabulary is {card.output_vocabulary}", "give terms with words only"
            )
        self.model, self.tokenizer, self.card = model, tokenizer, card
        rows = self._rows()
        terms = loading.output_vocabulary(tokenizer, rows) if vocabulary is None else vocabulary
        if card.head == "token_weights":
            self.register_buffer("unweighted", unweighted_tokens(tokenizer, rows), persistent=False)
        self.uncased = card_update.UncasedOutput(terms) if card.output_casing == "uncased" else None
        self.vocabulary = self.uncased.terms if self.uncased else terms
        if rows != len(terms) or len(self.vocabulary) != card.vocabulary_size:
            raise errors.ConfigError(
                "model",
                f"its head has {rows} outputs for {len(terms)} terms",
                f"give it what the card says, {card.vocabulary_size} terms",
            )
        if query_weights is not None and len(query_weights) != card.vocabulary_size:
            raise errors.ConfigError(
                "query_weights", f"there are {len(query_weights)} for {card.vocabulary_size} terms", "give one per term"
            )
        self.query_weights = query_weights if card.inference_free else None
        self.queries = queries
        if heads is None and card.appended_tokens:
            heads = appended_heads.AppendedHeads.of_matrix(backbone.output_layer(model)[0], card.appended_tokens)
        self.heads = heads
        _check_queries(card, queries)

    @classmethod
    def load(cls, source: str | Path, **card_overrides: Any) -> "SparseEncoder":
        """Read an encoder. No code of the model is run; weights are read from safetensors only, except BGE-M3's.

        Args:
            source: a model directory of lsr_prod, a folder of sentence-transformers' SparseEncoder, a folder of
                a language model or of BGE-M3, or a Hugging Face id of one of them.
            **card_overrides: fields of the encoder card to set: casing, query_max_length, document_max_length,
                query_prompt, document_prompt, activation, pooled_tokens, appended_tokens, attention, pooled_states,
                output_casing, query_encoder.

        Raises:
            ConfigError: the model cannot be read, has no trained vocabulary head, or does not support an override.
        """
        folder = loading.local_folder(source)
        own = {name: value for name, value in card_overrides.items() if name in ("query_max_length", "query_prompt")}
        found = loading.read_query_parts(folder, own)
        others = {name: value for name, value in card_overrides.items() if found is None or name not in own}
        queries = None if found is None else cls(*found[:5], heads=found.heads).eval()
        parts = loading.read_parts(folder, others)
        return cls(*parts[:5], queries=queries, heads=parts.heads).eval()

    def with_card(self, **card_changes: Any) -> "SparseEncoder":
        """Return an encoder with the same weights and other fields of the card, as in ``load``.

        Raises:
            ConfigError: the model does not support a change.
        """
        tokenizer = copy.deepcopy(self.tokenizer)
        words = self._words()
        terms = loading.output_vocabulary(tokenizer, self._rows()) if words is None else words
        card = card_update.update_card(self.card, card_changes, self.model.config, tokenizer, terms)
        queries = self.queries if card.query_encoder == "separate" else None
        kept = loading.kept_query_weights(self.query_weights, self.card, card)
        return SparseEncoder(self.model, tokenizer, card, words, kept, queries, self.heads).train(self.training)

    def clone(self) -> "SparseEncoder":
        """Return an encoder with a copy of the weights, for stages that change them; in evaluation mode."""
        queries = None if self.queries is None else self.queries.clone()
        model, heads = copy.deepcopy((self.model, self.heads))
        return SparseEncoder(model, self.tokenizer, self.card, self._words(), self.query_weights, queries, heads).eval()

    def document_encoder(self) -> "SparseEncoder":
        """Return the encoder without its separate query encoder; it shares the weights."""
        return self if self.queries is None else self.with_card(query_encoder="model")

    def with_queries(self, queries: "SparseEncoder") -> "SparseEncoder":
        """Return an encoder that encodes documents with this model, and queries with another one.

        Args:
            queries: encoder with the same output terms.

        Raises:
            ConfigError: the output terms differ, or one of the encoders has inference-free or separate queries already.
        """
        if self.card.query_encoder != "model":
            raise errors.ConfigError(
                "query_model",
                f"the card says query_encoder {self.card.query_encoder}: another encoder reads queries already",
                "leave query_model out, or start from a model that encodes queries",
            )
        card = replace(self.card, query_encoder="separate")
        return SparseEncoder(self.model, self.tokenizer, card, self._words(), queries=queries, heads=self.heads).eval()

    def save(self, folder: str | Path) -> str:
        """Write the model directory atomically; sentence-transformers can open it unless a setting is missing there.

        Args:
            folder: absent, empty, or a model directory with the same content.

        Returns:
            Its digest (hex).

        Raises:
            ConfigError: the folder has other content.
        """
        queries = None if self.queries is None else self.queries._parts()
        return write_model_directory(Path(folder), self._parts(), queries)

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        token_type_ids: torch.Tensor | None = None,
        found: PooledArgmax | None = None,
    ) -> torch.Tensor:
        """Return vectors over the output vocabulary.

        Args:
            input_ids: int64 [B, L].
            attention_mask: int64 [B, L], 0 at padding.
            token_type_ids: int64 [B, L]; default zeros.
            found: result of ``find_argmax`` for the same batch, weights and dropout; the output then equals its weights
                and has a graph, and the product with the output matrix is not computed again.

        Returns:
            [B, V], at least 0; float32 even under autocast.
        """
        states, pooled = self.pooled_states(input_ids, attention_mask, token_type_ids)
        if self.card.head != "vocabulary":  # cheap, so that it is computed in both passes
            return self._other_head(states, pooled, input_ids)
        assert self.card.activation != "relu"
        matrix, bias = backbone.output_layer(self.model)
        weights = pool_vocabulary(
            states, matrix, bias, pooled, activation=self.card.activation, found=found, heads=self.heads
        )
        return self.fold(weights)

    @torch.no_grad()
    def find_argmax(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, token_type_ids: torch.Tensor | None = None
    ) -> PooledArgmax:
        """Return the weights of the head and the token of each maximum, without a graph: the first of two passes.

        ``fold`` turns the weights into vectors.

        Args:
            input_ids: int64 [B, L].
            attention_mask: int64 [B, L], 0 at padding.
            token_type_ids: int64 [B, L]; default zeros.
        """
        states, pooled = self.pooled_states(input_ids, attention_mask, token_type_ids)
        if self.card.head != "vocabulary":
            vectors = self._other_head(states, pooled, input_ids)
            return PooledArgmax(vectors, input_ids.new_empty(len(vectors), 0))
        assert self.card.activation != "relu"
        matrix, bias = backbone.output_layer(self.model)
        return find_argmax(states, matrix, bias, pooled, activation=self.card.activation, heads=self.heads)

    def fold(self, weights: torch.Tensor) -> torch.Tensor:
        """Fold weights of the head's terms [B, rows of the output matrix] into vectors over the output terms [B, V]."""
        vectors: torch.Tensor = weights if self.uncased is None else self.uncased(weights)
        return vectors

    def pooled_states(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, token_type_ids: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the states that the head's linear layer multiplies, and the mask of the positions to pool.

        Args:
            input_ids: int64 [B, L].
            attention_mask: int64 [B, L], 0 at padding.
            token_type_ids: int64 [B, L]; default zeros.

        Returns:
            States [B, L, d] and bool [B, L]; with the average or the first of them, L is 1; with appended tokens, L is
            their number.
        """
        hidden = backbone.hidden_states(
            self.model, input_ids, attention_mask, token_type_ids, attention=self.card.attention
        )
        if self.card.pooled_tokens == "appended":
            hidden, pooled = pooling.appended_states(hidden, attention_mask, self.card.appended_tokens)
            return backbone.head_input(self.model, hidden), pooled
        pooled = pooling.pooled_positions(attention_mask, self.card.pooled_tokens)
        if self.card.pooled_states != "tokens":
            reduce = pooling.mean_states if self.card.pooled_states == "mean" else pooling.first_states
            hidden, pooled = reduce(hidden, pooled)
        if self.card.head != "vocabulary":
            return hidden, pooled
        return backbone.head_input(self.model, hidden), pooled

    def encode(
        self, texts: Sequence[str], kind: bundle_format.Kind = "document", batch_size: int = 32
    ) -> sparse.SparseBatch:
        """Encode texts, without pruning beyond ``max_terms`` of the card; a text of whitespace becomes an empty vector.

        Args:
            texts: any number of texts, without prompts.
            kind: decides prompt and length.
            batch_size: texts of one forward pass.

        Returns:
            One vector per text, in order.

        Raises:
            ConfigError: ``kind`` is query and queries are inference-free.
            EncoderRaisedError: a weight is NaN or infinite.
        """
        if kind == "query" and self.queries is not None:
            return self.queries.encode(texts, kind, batch_size)
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
        return sparse.SparseBatch.concatenate(parts).spread([visible[i] for i in by_length], len(texts))

    def _parts(self) -> ModelParts:
        return ModelParts(self.model, self.tokenizer, self.card, self._words(), self.query_weights, self.heads)

    def head_layer(self) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return matrix and bias of the head's linear layer."""
        if self.card.head == "vocabulary":
            return backbone.output_layer(self.model)
        layer = sparse_linear(self.model) if self.card.head == "token_weights" else autoencoder_of(self.model)
        return layer.weight, layer.bias

    def _other_head(self, states: torch.Tensor, pooled: torch.Tensor, input_ids: torch.Tensor) -> torch.Tensor:
        """Return the vectors of a head that is no vocabulary head."""
        if self.card.head == "token_weights":
            return pool_token_weights(states, sparse_linear(self.model), input_ids, pooled, self.unweighted)
        return latent_weights(states, autoencoder_of(self.model), pooled, self.card.state_scaling)

    def _rows(self) -> int:
        """Return the number of terms of the head."""
        embeddings: Any = self.model.get_input_embeddings()
        return len(embeddings.weight if self.card.head == "token_weights" else self.head_layer()[0])

    def _words(self) -> list[str] | None:
        return self.vocabulary if self.card.output_vocabulary == "words" else None

    def _token_ids(self, texts: Sequence[str], kind: bundle_format.Kind) -> list[list[int]]:
        tokenizer = Tokenizer.from_str(self.tokenizer.backend_tokenizer.to_str())
        tokenizer.no_padding()
        tokenizer.enable_truncation(self.card.max_length(kind))
        prompt = self.card.prompt(kind)
        return [encoding.ids for encoding in tokenizer.encode_batch([prompt + text for text in texts])]

    @torch.inference_mode()
    def _encode_batch(self, rows: Sequence[Sequence[int]]) -> sparse.SparseBatch:
        input_ids, attention_mask = pooling.pad_rows(rows, self.model.config.pad_token_id or 0)
        device = self.model.device
        weights = self(input_ids.to(device), attention_mask.to(device)).float().cpu().numpy()  # [B, V]
        if not np.isfinite(weights).all():  # NaN would be left out, like a weight of 0
            raise errors.EncoderRaisedError("the model returned a weight that is not finite")
        batch = sparse.SparseBatch.from_topk(np.broadcast_to(np.arange(weights.shape[1]), weights.shape), weights)
        return batch if self.card.max_terms is None else batch.top(self.card.max_terms)


def _check_queries(card: bundle_format.EncoderCard, queries: SparseEncoder | None) -> None:
    if (card.query_encoder == "separate") != (queries is not None):
        raise errors.ConfigError(
            "query_encoder",
            f"the card says {card.query_encoder}, with {'no' if queries is None else 'a'} separate query encoder",
            f"restore the folder {bundle_format.QUERY_FOLDER} of the model directory, or save the model again",
        )
    if queries is None:
        return
    if "autoencoder" in (card.head, queries.card.head):
        raise errors.ConfigError(
            "query_model", "a sparse autoencoder has no separate query encoder", "give models with vocabulary heads"
        )
    if queries.card.query_encoder != "model":
        raise errors.ConfigError(
            "query_model",
            f"its card says query_encoder {queries.card.query_encoder}",
            "give a model that encodes queries",
        )
    if queries.card.vocabulary_sha256 != card.vocabulary_sha256:
        raise errors.ConfigError(
            "query_model",
            f"its {queries.card.vocabulary_size} output terms differ from the model's {card.vocabulary_size}",
            "give a model with the same output vocabulary, or transfer it to that vocabulary first",
        )
