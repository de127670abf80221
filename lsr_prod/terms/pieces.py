"""Sub-tokens of the terms of another vocabulary."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tokenizers import Tokenizer

from lsr_prod.terms.surfaces import Notation, Surface, notation_of, spell, surfaces
from lsr_prod.terms.words import split_words, word_pieces

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


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
