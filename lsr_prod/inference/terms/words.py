"""Words and output terms of texts, found by the tokenizer alone.

``TermReader`` finds output terms, for inference-free queries and their IDF. With an output vocabulary of tokens, the
terms of a text are its tokens without special tokens; with uncased terms, the uncased forms of its tokens; with a
vocabulary of words, its words.

``split_words`` splits texts of any script into words, ``word_pieces`` words into sub-tokens. An expanded vocabulary
consists of these words; masking selects among them, and validation counts them.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import numpy as np
from tokenizers import Tokenizer, normalizers, pre_tokenizers

from lsr_prod.errors import ConfigError
from lsr_prod.inference.terms.surfaces import Notation, Surface, lowered, notation_of, spell, surfaces
from lsr_prod.storage.formats import bundle_format, digests, term_weights

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

_CHARACTERS = 1_000_000  # of texts whose tokens are in memory at once


class QueryTerms(NamedTuple):
    """Distinct terms of a query, in the order of the text."""

    ids: list[int]  # ids of the output terms
    unknown: list[str]  # words that are not output terms; always empty with a vocabulary of tokens


class TermReader:
    """Finds the output terms of texts. Safe to share between threads."""

    FILES = (bundle_format.CARD_FILE, bundle_format.TOKENIZER_FILE, bundle_format.VOCABULARY_FILE)

    def __init__(self, tokenizer: str, card: bundle_format.EncoderCard, vocabulary: Sequence[str]) -> None:
        """Prepare the tokenizer."""
        self._words = card.output_vocabulary == "words"
        if self._words:
            check_words(vocabulary, "query_encoder")
        backend = Tokenizer.from_str(tokenizer)
        backend.no_padding()
        backend.no_truncation()
        self.vocabulary_size = len(vocabulary)
        self._whole, self._most = backend, card.query_max_length
        # A copy, because truncation is a state of a tokenizer and documents are not truncated.
        self._query = Tokenizer.from_str(backend.to_str())
        self._query.enable_truncation(card.query_max_length - backend.num_special_tokens_to_add(False))
        self._normalizer = word_normalizer(backend)
        self._term_of = {word: number for number, word in enumerate(vocabulary)} if self._words else {}
        self._term_of_token = [] if self._words else _tokens(backend, card, vocabulary)
        self._table = np.array(self._term_of_token, np.int32)

    @classmethod
    def open(cls, bundle: Path) -> "TermReader":
        """Open the term reader of a bundle."""
        tokenizer = (bundle / bundle_format.TOKENIZER_FILE).read_text(encoding="utf-8")
        return cls(tokenizer, bundle_format.EncoderCard.load(bundle), bundle_format.read_vocabulary(bundle))

    def query(self, text: str) -> QueryTerms:
        """Return the terms of the first ``query_max_length`` tokens (special tokens included) or words of a query."""
        if self._words:
            words = dict.fromkeys(split_normalized(text, self._normalizer)[: self._most])
            ids = [self._term_of.get(word, -1) for word in words]
            unknown = [word for word, number in zip(words, ids, strict=True) if number < 0]
            return QueryTerms([number for number in ids if number >= 0], unknown)
        term_of = self._term_of_token
        found = dict.fromkeys(term_of[token] for token in self._query.encode(text, add_special_tokens=False).ids)
        found.pop(-1, None)
        return QueryTerms(list(found), [])

    def documents(self, texts: Sequence[str]) -> list[np.typing.NDArray[np.int32]]:
        """Return the distinct terms of whole texts: int32 [t] per text, rising."""
        if self._words:
            found = [[self._term_of.get(word, -1) for word in split_normalized(t, self._normalizer)] for t in texts]
            return [_distinct(np.array(ids, np.int32)) for ids in found]
        encodings = self._whole.encode_batch_fast(list(texts), add_special_tokens=False)
        return [_distinct(self._table[encoding.ids]) for encoding in encodings]

    def count(self, texts: Iterable[str], before: term_weights.TermCounts | None = None) -> term_weights.TermCounts:
        """Count the texts that have each term; only a few texts are in memory at a time."""
        counts = before or term_weights.TermCounts.none(self.vocabulary_size)
        batch: list[str] = []
        size = 0
        for text in texts:
            batch.append(text)
            size += len(text)
            if size >= _CHARACTERS:
                counts, batch, size = counts.with_texts(self.documents(batch)), [], 0
        return counts.with_texts(self.documents(batch)) if batch else counts

    @staticmethod
    def digest(bundle: Path) -> str:
        """Return the sha256 (hex) of everything that determines the terms of a document."""
        card = bundle_format.EncoderCard.load(bundle)
        tokenizer = (bundle / bundle_format.TOKENIZER_FILE).read_text(encoding="utf-8")
        return digests.digest_json([tokenizer, card.vocabulary_sha256, card.output_vocabulary, card.output_casing])


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


def lowercases(tokenizer: Tokenizer) -> bool:
    """Return whether a tokenizer's normalizer lowercases its input."""
    return "lowercase" in _steps(json.loads(tokenizer.to_str())["normalizer"])


def check_words(terms: Sequence[str], field: str) -> None:
    """Require that an output vocabulary consists of words, which can be looked up in texts."""
    if notation_of(terms) != "words":
        refuse_tokens(field)


def refuse_tokens(field: str) -> NoReturn:
    """Raise the error for output terms that are tokens of another tokenizer; see ``check_words``."""
    problem = "the output terms are tokens of another tokenizer than the encoder's and cannot be looked up in texts"
    raise ConfigError(field, problem, "transfer the whole vocabulary (parts: all), or leave this setting out")


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
    return sum(map(len, tokenizer(texts, add_special_tokens=False)["input_ids"])) / words if words else 0.0


def special_tokens(tokenizer: Tokenizer) -> set[int]:
    """Return the ids of the special tokens."""
    return {number for number, added in tokenizer.get_added_tokens_decoder().items() if added.special}


def _tokens(tokenizer: Tokenizer, card: bundle_format.EncoderCard, vocabulary: Sequence[str]) -> list[int]:
    """Return the output term of every token; -1 for tokens without one, such as special tokens that are skipped."""
    skipped = special_tokens(tokenizer) if card.query_special_tokens == "skipped" else ()
    last = max(tokenizer.get_vocab(with_added_tokens=True).values())
    tokens = [tokenizer.id_to_token(number) or "" for number in range(last + 1)]
    if card.output_casing == "uncased":
        terms = {surface: number for number, surface in enumerate(surfaces(vocabulary))}
        found = [terms.get(lowered(surface), -1) for surface in surfaces(tokens)]
    else:
        found = [number if number < len(vocabulary) else -1 for number in range(len(tokens))]
    return [-1 if number in skipped else term for number, term in enumerate(found)]


def _distinct(ids: np.typing.NDArray[np.int32]) -> np.typing.NDArray[np.int32]:
    found = np.unique(ids)
    return found[1:] if len(found) and found[0] < 0 else found


def _steps(normalizer: dict[str, object] | None) -> set[str]:
    if normalizer is None:
        return set()
    if normalizer["type"] == "Sequence":
        inner = normalizer["normalizers"]
        assert isinstance(inner, list)
        return set().union(*(_steps(step) for step in inner))
    return {"lowercase"} if normalizer["type"] == "Lowercase" or normalizer.get("lowercase") is True else set()


def _space_before(tokenizer: Tokenizer) -> str:
    """Return the prefix with which a word is tokenized as inside a text: a space for byte-level BPE, else nothing."""
    bare, spaced = (tokenizer.encode(text, add_special_tokens=False).tokens for text in ("the", " the"))
    marked = bool(bare) and bare[0].startswith(_MARKERS)
    return " " if not marked and spaced and spaced[0].startswith(_MARKERS) else ""


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
