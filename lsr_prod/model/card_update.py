"""Update of the fields of an encoder card, and the checks of their values against the model.

Uncased output terms (papers/casing, post-processing).

Cased terms are dropped. A word that only has cased terms is folded into its lowercase form by the maximum.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from tokenizers import normalizers
from transformers import PreTrainedConfig, PreTrainedTokenizerFast

from lsr_prod.errors import ConfigError
from lsr_prod.inference.terms import surfaces, words
from lsr_prod.model import backbone, tokenizer_files
from lsr_prod.storage.formats.bundle_format import HEADS, LONGEST, EncoderCard, longest_input
from lsr_prod.storage.formats.digests import digest_json


class UncasedOutput(torch.nn.Module):
    """Folds the weights of the V terms of a head into weights of G uncased terms.

    Attributes:
        terms: the G terms.
        first: int64 [G], the first row of the head of each term.
        more_rows: int64 [E], the further rows of terms with several rows.
        more_terms: int64 [E], the terms of ``more_rows``, 0..G-1.
    """

    first: torch.Tensor
    more_rows: torch.Tensor
    more_terms: torch.Tensor

    def __init__(self, vocabulary: Sequence[str]) -> None:
        """Group the terms of a head."""
        super().__init__()
        check_uncased(letters_of(vocabulary))
        found = surfaces.uncased_groups(vocabulary)
        self.terms = found.terms
        self._assign(torch.tensor(found.rows), torch.tensor(found.groups))

    def restricted(self, columns: torch.Tensor) -> tuple[torch.Tensor, "UncasedOutput"]:
        """Restrict the output to some terms: return the rows of the head to keep, and the folding of these rows.

        Returns:
            int64 [K], sorted rows of the head; and a module that folds weights [B, K] into [B, len(columns)].
        """
        kept = torch.isin(self.more_terms, columns)
        rows = torch.cat((self.first[columns], self.more_rows[kept]))
        groups = torch.cat((torch.arange(len(columns)), torch.searchsorted(columns, self.more_terms[kept])))
        rows, order = rows.sort()
        fold = copy.deepcopy(self)
        fold.terms = [self.terms[i] for i in columns.tolist()]
        fold._assign(torch.arange(len(rows)), groups[order])
        return rows, fold

    def _assign(self, rows: torch.Tensor, groups: torch.Tensor) -> None:
        order = groups.argsort(stable=True)
        rows, groups = rows[order], groups[order]
        leads = torch.ones_like(groups, dtype=torch.bool)
        leads[1:] = groups[1:] != groups[:-1]
        for name, value in (("first", rows[leads]), ("more_rows", rows[~leads]), ("more_terms", groups[~leads])):
            self.register_buffer(name, value, persistent=False)

    def forward(self, weights: torch.Tensor) -> torch.Tensor:
        """Fold weights [B, V], at least 0, into [B, G]."""
        folded = weights.index_select(1, self.first)
        if not len(self.more_rows):
            return folded
        places = self.more_terms[None, :].expand(weights.shape[0], -1)
        return folded.scatter_reduce(1, places, weights.index_select(1, self.more_rows), "amax")


def letters_of(terms: Sequence[str]) -> frozenset[str]:
    """Return ``lower`` if a term has a lowercase letter, and ``capital`` if a term is cased."""
    lower = {"lower"} if any(term != term.upper() for term in terms) else set()
    return frozenset(lower | ({"capital"} if any(surfaces.cased_terms(terms)) else set()))


def check_uncased(letters: frozenset[str]) -> None:
    """Refuse uncased output for a vocabulary without uncased forms."""
    if "lower" not in letters:
        raise ConfigError("output_casing", "no output term has a lowercase letter", "leave the field out")
    if "capital" not in letters:
        raise ConfigError("output_casing", "no output term is cased", "leave the field out")


_CHOICES = {
    "casing": ("none", "lowercase"),
    "activation": ("log1p_relu", "l0"),
    "pooled_tokens": ("all", "not_bos", "appended"),
    "attention": ("bidirectional", "causal", "echo"),
    "pooled_states": ("tokens", "mean"),
    "output_casing": ("all", "uncased"),
    "query_encoder": ("model", "idf", "learned"),
}
_OF_VOCABULARY_HEAD = ("activation", "appended_tokens", "attention", "output_casing", "pooled_states", "pooled_tokens")
_LENGTHS = ("query_max_length", "document_max_length")
_SETTABLE = (*_CHOICES, *_LENGTHS, "query_prompt", "document_prompt", "appended_tokens")


def update_card(
    card: EncoderCard,
    changes: Mapping[str, Any],
    config: PreTrainedConfig,
    tokenizer: PreTrainedTokenizerFast,
    terms: Sequence[str],
) -> EncoderCard:
    """Return the card with other values; casing and appended tokens also change the tokenizer, in place."""
    for name in changes:
        if name not in _SETTABLE:
            raise ConfigError(name, "this field of the encoder card cannot be set", f"set {', '.join(_SETTABLE)}")
        if name in _CHOICES and changes[name] not in _CHOICES[name]:
            raise ConfigError(name, f"{changes[name]!r} is unknown", f"use one of {', '.join(_CHOICES[name])}")
    check_head(card.head, {name: value for name, value in changes.items() if value != getattr(card, name)})
    changed = replace(card, **changes)
    if changed.query_encoder != "learned":
        changed = replace(changed, query_special_tokens="skipped")
    check_attention(changed)
    check_appended(card.appended_tokens, changed.appended_tokens)
    check_query_encoder(changed.query_encoder, changed.query_prompt)
    if changed.inference_free and changed.output_vocabulary == "words":
        words.check_words(terms, "query_encoder")
    if changed.appended_tokens != card.appended_tokens:
        tokenizer_files.append_tokens(tokenizer, config, changed.appended_tokens)
    _check_lengths(changed, config, tokenizer)
    if changed.casing != card.casing:
        check_casing(changed.casing, letters_of(list(tokenizer.get_vocab())))
    if changed.output_casing != card.output_casing:
        check_terms(card.output_vocabulary)
        terms = output_terms(terms, changed.output_casing)
        changed = replace(changed, vocabulary_size=len(terms), vocabulary_sha256=digest_json(terms))
    if changed.casing != card.casing:
        add_lowercase(tokenizer)
    return changed


def check_head(head: str, changes: Mapping[str, Any]) -> None:
    """Refuse fields of the card that have no effect on a head that is no vocabulary head."""
    if head == "vocabulary":
        return
    for name in (*_OF_VOCABULARY_HEAD, "query_encoder") if head == "autoencoder" else _OF_VOCABULARY_HEAD:
        if changes.get(name) is not None:
            raise ConfigError(name, f"the model has {HEADS[head]}, on which it has no effect", "leave it out")


def check_vocabulary_head(card: EncoderCard) -> None:
    """Require a vocabulary head."""
    if card.head != "vocabulary":
        name = HEADS[card.head].partition(" (")[0]
        raise ConfigError("model", f"it has {name}, so no vocabulary head", "give a model with one")


def output_terms(terms: Sequence[str], output_casing: str) -> list[str]:
    """Return the output terms of a head whose rows have the terms ``terms``."""
    if output_casing == "all":
        return list(terms)
    check_uncased(letters_of(terms))
    return surfaces.uncased_groups(terms).terms


def check_attention(card: EncoderCard) -> None:
    """Refuse an attention and pooled tokens that the architecture does not support, or that contradict each other."""
    causal = backbone.is_causal(card.architecture)
    if not causal and card.attention != "bidirectional":
        raise ConfigError(
            "attention", f"{card.architecture} is not a decoder and cannot be {card.attention}", "leave it out"
        )
    if causal and card.pooled_tokens == "all":
        # The first token is an attention sink: its state does not represent the text.
        raise ConfigError(
            "pooled_tokens", f"the first token of a {card.architecture} does not represent the text", "use not_bos"
        )
    if card.appended_tokens < 0 or (card.pooled_tokens == "appended") != (card.appended_tokens > 0):
        raise ConfigError(
            "appended_tokens",
            f"pooled_tokens is {card.pooled_tokens}, with {card.appended_tokens} appended tokens",
            "set pooled_tokens to appended and appended_tokens to 1 or more, or leave both out",
        )
    if card.pooled_tokens == "appended" and card.pooled_states != "tokens":
        raise ConfigError(
            "pooled_states",
            "every appended token has a head of its own, so their states cannot be averaged",
            "use tokens, or another value of pooled_tokens",
        )


def check_appended(before: int, after: int) -> None:
    """Refuse another number of appended tokens for a tokenizer that appends some."""
    if before not in (0, after):
        raise ConfigError(
            "appended_tokens",
            f"the tokenizer appends {before} tokens already",
            "leave it out, or start from the model without them",
        )


def check_terms(output_vocabulary: str) -> None:
    """Refuse uncased output for an output vocabulary of words."""
    if output_vocabulary == "words":
        raise ConfigError(
            "output_casing", "it applies to output terms that are tokens, and these are words", "leave it out"
        )


def check_query_encoder(query_encoder: str, query_prompt: str) -> None:
    """Refuse a query prompt for inference-free queries."""
    if query_encoder in ("idf", "learned") and query_prompt:
        raise ConfigError(
            "query_prompt", "inference-free queries use no model, so a prompt has no effect", "set it to the empty text"
        )


def add_lowercase(tokenizer: PreTrainedTokenizerFast) -> None:
    """Add lowercasing before all other steps of the normalizer, in place."""
    backend = tokenizer.backend_tokenizer
    steps = [normalizers.Lowercase(), *([backend.normalizer] if backend.normalizer else [])]
    backend.normalizer = normalizers.Sequence(steps)


def _check_lengths(card: EncoderCard, config: PreTrainedConfig, tokenizer: PreTrainedTokenizerFast) -> None:
    shortest, longest = tokenizer.num_special_tokens_to_add() + 1, longest_input(config.to_dict(), card.attention)
    for name in _LENGTHS:
        most = LONGEST if card.inference_free and name == "query_max_length" else longest
        if not shortest <= getattr(card, name) <= most:
            raise ConfigError(
                name, f"{getattr(card, name)} is outside the lengths of this model", f"give {shortest} to {most} tokens"
            )


def check_casing(casing: str, letters: frozenset[str]) -> None:
    """Refuse a casing of the input that the tokenizer does not support."""
    if casing == "none":
        raise ConfigError("casing", "the tokenizer lowercases already", "leave the field out")
    if "lower" not in letters:
        raise ConfigError("casing", "the tokenizer has no token with a lowercase letter", "leave the field out")
