"""Words of any script: the one place where a text becomes words, and words become sub-tokens.

An expanded vocabulary consists of such words, its masking chooses among them, and its validation counts them.
"""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from tokenizers import Tokenizer, normalizers, pre_tokenizers

from lsr_prod.errors import ConfigError
from lsr_prod.terms.surfaces import notation_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

__all__ = [
    "check_words",
    "lowercases",
    "refuse_tokens",
    "split_normalized",
    "split_words",
    "word_normalizer",
    "word_pieces",
]

# Accents stay, and so do the syllables of Hangul, which stripping would take apart; an ideograph is a word of its own.
_NORMALIZER = normalizers.Sequence(
    [
        normalizers.NFC(),
        normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=True, strip_accents=False, lowercase=True),
    ]
)
_PRE_TOKENIZER = pre_tokenizers.BertPreTokenizer()
_MARKERS = ("Ġ", "▁")


def check_words(terms: Sequence[str], field: str) -> None:
    """Refuse output terms of a head's own that are not words and so cannot be looked up in a text.

    Raises:
        ConfigError: they are tokens of another tokenizer than the encoder's; it names the setting ``field``.
    """
    if notation_of(terms) != "words":
        refuse_tokens(field)


def refuse_tokens(field: str) -> NoReturn:
    """Say that the output terms are tokens of another tokenizer than the encoder's; see ``check_words``.

    Raises:
        ConfigError: always.
    """
    raise ConfigError(
        field,
        "the output terms are tokens of another tokenizer than the encoder's, which are not looked up in texts",
        "transfer the whole vocabulary (parts: all), or do without",
    )


def split_words(text: str, tokenizer: "PreTrainedTokenizerFast | None" = None) -> list[str]:
    """The words of a text in their order, lowercase; a punctuation mark is a word.

    Args:
        text: any text.
        tokenizer: if it lowercases, its own normalizer is used, so that words are spelt as its tokens are; any other,
            or none: NFC and lowercase.

    Returns:
        Words without white space.
    """
    return split_normalized(text, word_normalizer(None if tokenizer is None else tokenizer.backend_tokenizer))


def word_normalizer(tokenizer: Tokenizer | None) -> normalizers.Normalizer:
    """What a text goes through before it is split; looking it up reads the whole tokenizer."""
    return tokenizer.normalizer if tokenizer is not None and lowercases(tokenizer) else _NORMALIZER


def split_normalized(text: str, normalizer: normalizers.Normalizer) -> list[str]:
    """As ``split_words``, with a normalizer that was looked up before."""
    plain = normalizer.normalize_str(text).replace("▁", " ")  # SentencePiece's normalizers write spaces so
    return [word for word, _ in _PRE_TOKENIZER.pre_tokenize_str(plain)]


def word_pieces(words: Sequence[str], tokenizer: "PreTrainedTokenizerFast") -> list[list[int]]:
    """Sub-token ids of each word as it stands inside a text, without special tokens.

    Args:
        words: as ``split_words`` returns them.
        tokenizer: of a model, whatever its markers of a word's beginning.

    Returns:
        One list a word; empty where the tokenizer's normalizer leaves nothing of the word.
    """
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())  # a copy without padding and truncation
    backend.no_padding()
    backend.no_truncation()
    prefix = _space_before(backend)
    encodings = backend.encode_batch([prefix + word for word in words], add_special_tokens=False)
    return [encoding.ids for encoding in encodings]


def lowercases(tokenizer: Tokenizer) -> bool:
    """Whether a tokenizer's normalizer lowercases its input."""
    normalizer = json.loads(tokenizer.to_str())["normalizer"]
    return "lowercase" in _steps(normalizer)


def _steps(normalizer: dict[str, object] | None) -> set[str]:
    if normalizer is None:
        return set()
    if normalizer["type"] == "Sequence":
        inner = normalizer["normalizers"]
        assert isinstance(inner, list)
        return set().union(*(_steps(step) for step in inner))
    lowers = normalizer["type"] == "Lowercase" or normalizer.get("lowercase") is True
    return {"lowercase"} if lowers else set()


def _space_before(tokenizer: Tokenizer) -> str:
    """What has to stand before a word so that it is tokenized as inside a text: byte-level BPE needs the space."""
    bare, spaced = (tokenizer.encode(text, add_special_tokens=False).tokens for text in ("the", " the"))
    marked = bool(bare) and bare[0].startswith(_MARKERS)
    return " " if not marked and spaced and spaced[0].startswith(_MARKERS) else ""
