"""Split texts of any script into words, and words into sub-tokens.

An expanded vocabulary consists of these words; masking selects among them, and validation counts them.
"""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from tokenizers import Tokenizer, normalizers, pre_tokenizers

from lsr_prod.errors import ConfigError
from lsr_prod.inference.terms.surfaces import Notation, Surface, notation_of, spell, surfaces

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

# Accents are kept, because stripping them would take Hangul syllables apart; every ideograph is one word.
_NORMALIZER = normalizers.Sequence(
    [
        normalizers.NFC(),
        normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=True, strip_accents=False, lowercase=True),
    ]
)
_PRE_TOKENIZER = pre_tokenizers.BertPreTokenizer()
_MARKERS = ("Ġ", "▁")


def check_words(terms: Sequence[str], field: str) -> None:
    """Require that an output vocabulary consists of words, which can be looked up in texts."""
    if notation_of(terms) != "words":
        refuse_tokens(field)


def refuse_tokens(field: str) -> NoReturn:
    """Raise the error for output terms that are tokens of another tokenizer; see ``check_words``."""
    problem = "the output terms are tokens of another tokenizer than the encoder's and cannot be looked up in texts"
    raise ConfigError(field, problem, "transfer the whole vocabulary (parts: all), or leave this setting out")


def split_words(text: str, tokenizer: "PreTrainedTokenizerFast | None" = None) -> list[str]:
    """Return the words of a text in order, lowercase; a punctuation mark is a word.

    Returns:
        Words without white space.
    """
    return split_normalized(text, word_normalizer(None if tokenizer is None else tokenizer.backend_tokenizer))


def word_normalizer(tokenizer: Tokenizer | None) -> normalizers.Normalizer:
    """Return the normalizer applied before splitting; this parses the whole tokenizer."""
    return tokenizer.normalizer if tokenizer is not None and lowercases(tokenizer) else _NORMALIZER


def split_normalized(text: str, normalizer: normalizers.Normalizer) -> list[str]:
    """Split like ``split_words``, with the result of ``word_normalizer``."""
    plain = normalizer.normalize_str(text).replace("▁", " ")  # SentencePiece normalizers write spaces as "▁"
    return [word for word, _ in _PRE_TOKENIZER.pre_tokenize_str(plain)]


def word_pieces(words: Sequence[str], tokenizer: "PreTrainedTokenizerFast") -> list[list[int]]:
    """Return the sub-token ids of each word as inside a text, without special tokens.

    Returns:
        One list per word; empty if the tokenizer's normalizer removes the whole word.
    """
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())  # a copy without padding and truncation
    backend.no_padding()
    backend.no_truncation()
    prefix = _space_before(backend)
    encodings = backend.encode_batch([prefix + word for word in words], add_special_tokens=False)
    return [encoding.ids for encoding in encodings]


def lowercases(tokenizer: Tokenizer) -> bool:
    """Return whether a tokenizer's normalizer lowercases its input."""
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
    """Return the prefix with which a word is tokenized as inside a text: a space for byte-level BPE, else nothing."""
    bare, spaced = (tokenizer.encode(text, add_special_tokens=False).tokens for text in ("the", " the"))
    marked = bool(bare) and bare[0].startswith(_MARKERS)
    return " " if not marked and spaced and spaced[0].startswith(_MARKERS) else ""


def term_pieces(terms: Sequence[str], tokenizer: "PreTrainedTokenizerFast") -> list[list[int]]:
    """Return the sub-token ids of terms as inside a text (vocabulary-transfer, 4.2.2, sub-token initialization).

    Returns:
        One list per term, without unknown tokens; empty for special tokens and for terms without known pieces.
    """
    plain, backend = surfaces(terms), tokenizer.backend_tokenizer
    words = [surface.text for surface in plain if surface.place == "initial" and surface.text]
    initial = iter(word_pieces(words, tokenizer))
    notation = notation_of(list(backend.get_vocab()))
    found: list[list[int]] = []
    for surface in plain:
        match surface.place:
            case "initial":
                found.append(next(initial) if surface.text else [])
            case "inner":
                found.append(_inner_pieces(surface.text, backend, notation))
            case "special":
                found.append([])
    return [[piece for piece in pieces if piece != tokenizer.unk_token_id] for pieces in found]


def fragmentation(texts: list[str], tokenizer: "PreTrainedTokenizerFast") -> float:
    """Return tokens per word (table 9) without special tokens; punctuation marks are words."""
    words = sum(len(split_words(text)) for text in texts)
    tokens = sum(map(len, tokenizer(texts, add_special_tokens=False)["input_ids"]))
    return tokens / words if words else 0.0


def _inner_pieces(text: str, tokenizer: Tokenizer, notation: Notation) -> list[int]:
    """Return the pieces of a text inside a word: without a word-start marker, or with the continuation marker."""
    if tokenizer.normalizer is not None:
        text = tokenizer.normalizer.normalize_str(text).lstrip("▁")
    if not text:
        return []
    if notation in ("byte_level", "sentence_piece"):
        return [token.id for token in tokenizer.model.tokenize(spell(Surface(text, "inner"), notation))]
    return _longest_matches(text, tokenizer)


def _longest_matches(text: str, tokenizer: Tokenizer) -> list[int]:
    """Return WordPiece tokens from inside a word, which the model has no call for; empty if no piece fits."""
    pieces: list[int] = []
    while text:
        found = ((tokenizer.token_to_id(f"##{text[:end]}"), end) for end in range(len(text), 0, -1))
        piece, end = next(((piece, end) for piece, end in found if piece is not None), (None, 0))
        if piece is None:
            return []
        pieces.append(piece)
        text = text[end:]
    return pieces
