"""Changes of an encoder card: which fields can be set, and what of them fits which model."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tokenizers import normalizers
from transformers import PreTrainedConfig, PreTrainedTokenizerFast

from lsr_prod.errors import ConfigError
from lsr_prod.formats.card import EncoderCard
from lsr_prod.formats.digest import digest_json
from lsr_prod.model.backbone import is_causal
from lsr_prod.model.uncased import check_uncased, letters_of
from lsr_prod.terms.casing import uncased_groups
from lsr_prod.terms.words import check_words

__all__ = [
    "add_lowercase",
    "change_card",
    "check_attention",
    "check_casing",
    "check_query_encoder",
    "check_terms",
    "longest_input",
    "output_terms",
]

_CHOICES = {
    "casing": ("none", "lowercase"),
    "activation": ("log1p_relu", "l0"),
    "pooled_tokens": ("all", "not_bos"),
    "attention": ("bidirectional", "causal", "echo"),
    "pooled_states": ("tokens", "mean"),
    "output_casing": ("all", "uncased"),
    "query_encoder": ("model", "idf"),
}
_LENGTHS = ("query_max_length", "document_max_length")
_SETTABLE = (*_CHOICES, *_LENGTHS, "query_prompt", "document_prompt")


def change_card(
    card: EncoderCard,
    changes: Mapping[str, Any],
    config: PreTrainedConfig,
    tokenizer: PreTrainedTokenizerFast,
    terms: Sequence[str],
) -> EncoderCard:
    """A card with other fields; the tokenizer is changed in place where they ask for it.

    Args:
        card: of an encoder.
        changes: fields and their new values.
        config: of the model.
        tokenizer: of the encoder.
        terms: of the head's rows.

    Raises:
        ConfigError: a field cannot be set, has an unknown value, or does not fit the model.
    """
    for name in changes:
        if name not in _SETTABLE:
            raise ConfigError(name, "this field of the encoder card cannot be set", f"set {', '.join(_SETTABLE)}")
        if name in _CHOICES and changes[name] not in _CHOICES[name]:
            raise ConfigError(name, f"{changes[name]!r} is unknown", f"use one of {', '.join(_CHOICES[name])}")
    changed = replace(card, **changes)
    check_attention(changed)
    check_query_encoder(changed.query_encoder, changed.query_prompt)
    if changed.query_encoder == "idf" and changed.output_vocabulary == "words":
        check_words(terms, "query_encoder")
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


def output_terms(terms: Sequence[str], output_casing: str) -> list[str]:
    """The output terms of a head whose rows have ``terms``.

    Raises:
        ConfigError: uncased ones are asked for, and there are none or no others.
    """
    if output_casing == "all":
        return list(terms)
    check_uncased(letters_of(terms))
    return uncased_groups(terms).terms


def check_attention(card: EncoderCard) -> None:
    """Refuse what an architecture cannot see or should not pool.

    Raises:
        ConfigError: an encoder is asked for the attention of a decoder, or the first token of a decoder is pooled.
    """
    causal = is_causal(card.architecture)
    if not causal and card.attention != "bidirectional":
        raise ConfigError(
            "attention", f"{card.architecture} is no decoder and cannot be {card.attention}", "leave it out"
        )
    if causal and card.pooled_tokens == "all":
        # Every token attends to the first one, so that its state stands for no text.
        raise ConfigError("pooled_tokens", f"the first token of a {card.architecture} is no text", "use not_bos")


def check_terms(output_vocabulary: str) -> None:
    """Refuse uncased output of words.

    Raises:
        ConfigError: the terms are words of their own.
    """
    if output_vocabulary == "words":
        raise ConfigError("output_casing", "a head with terms of its own keeps them as they are", "leave it out")


def check_query_encoder(query_encoder: str, query_prompt: str) -> None:
    """Refuse a prompt that no model would read.

    Raises:
        ConfigError: queries have no model, and a prompt.
    """
    if query_encoder == "idf" and query_prompt:
        raise ConfigError("query_prompt", "queries weighed by IDF have no model to prompt", "set it to the empty text")


def longest_input(config: PreTrainedConfig, attention: str = "bidirectional") -> int:
    """Tokens of a text at most, special tokens included; a text that is given twice needs two positions a token."""
    positions = int(config.max_position_embeddings)
    if config.model_type == "roberta":
        positions -= config.pad_token_id + 1  # its positions start behind the padding index
    return positions // 2 if attention == "echo" else positions


def add_lowercase(tokenizer: PreTrainedTokenizerFast) -> None:
    """Put lowercasing before all else that the normalizer does, in place."""
    backend = tokenizer.backend_tokenizer
    steps = [normalizers.Lowercase(), *([backend.normalizer] if backend.normalizer else [])]
    backend.normalizer = normalizers.Sequence(steps)


def _check_lengths(card: EncoderCard, config: PreTrainedConfig, tokenizer: PreTrainedTokenizerFast) -> None:
    shortest, longest = tokenizer.num_special_tokens_to_add() + 1, longest_input(config, card.attention)
    for name in _LENGTHS:
        if not shortest <= getattr(card, name) <= longest:
            raise ConfigError(
                name, f"{getattr(card, name)} is no length of this model", f"give {shortest} to {longest} tokens"
            )


def check_casing(casing: str, letters: frozenset[str]) -> None:
    """Refuse another casing of the input than a tokenizer can have.

    Args:
        casing: that is asked for.
        letters: of its tokens, see ``letters_of``.

    Raises:
        ConfigError: it lowercases and should not, or has no lowercase tokens.
    """
    if casing == "none":
        raise ConfigError("casing", "the tokenizer lowercases already", "leave the field out")
    if "lower" not in letters:
        raise ConfigError("casing", "the tokenizer has no token with a lowercase letter", "leave the field out")
