"""Output terms of texts, found by the tokenizer alone: for inference-free queries and their IDF.

With an output vocabulary of tokens, the terms of a text are its tokens without special tokens; with uncased terms, the
uncased forms of its tokens; with a vocabulary of words, its words.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from lsr_prod.inference.terms.surfaces import lowered, surfaces
from lsr_prod.inference.terms.words import check_words, split_normalized, word_normalizer
from lsr_prod.storage.formats.bundle import TOKENIZER_FILE, VOCABULARY_FILE, read_vocabulary
from lsr_prod.storage.formats.card import CARD_FILE, EncoderCard
from lsr_prod.storage.formats.digest import digest_json
from lsr_prod.storage.formats.term_weights import TermCounts

_CHARACTERS = 1_000_000  # of texts whose tokens are in memory at once


class QueryTerms(NamedTuple):
    """Distinct terms of a query, in the order of the text."""

    ids: list[int]  # ids of the output terms
    unknown: list[str]  # words that are not output terms; always empty with a vocabulary of tokens


class TermReader:
    """Finds the output terms of texts. Safe to share between threads."""

    FILES = (CARD_FILE, TOKENIZER_FILE, VOCABULARY_FILE)

    def __init__(self, tokenizer: str, card: EncoderCard, vocabulary: Sequence[str]) -> None:
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
        tokenizer = (bundle / TOKENIZER_FILE).read_text(encoding="utf-8")
        return cls(tokenizer, EncoderCard.load(bundle), read_vocabulary(bundle))

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

    def documents(self, texts: Sequence[str]) -> list[npt.NDArray[np.int32]]:
        """Return the distinct terms of whole texts: int32 [t] per text, rising."""
        if self._words:
            found = [[self._term_of.get(word, -1) for word in split_normalized(t, self._normalizer)] for t in texts]
            return [_distinct(np.array(ids, np.int32)) for ids in found]
        encodings = self._whole.encode_batch_fast(list(texts), add_special_tokens=False)
        return [_distinct(self._table[encoding.ids]) for encoding in encodings]

    def count(self, texts: Iterable[str], before: TermCounts | None = None) -> TermCounts:
        """Count the texts that have each term; only a few texts are in memory at a time."""
        counts = before or TermCounts.none(self.vocabulary_size)
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
        card = EncoderCard.load(bundle)
        tokenizer = (bundle / TOKENIZER_FILE).read_text(encoding="utf-8")
        return digest_json([tokenizer, card.vocabulary_sha256, card.output_vocabulary, card.output_casing])


def special_tokens(tokenizer: Tokenizer) -> set[int]:
    """Return the ids of the special tokens."""
    return {number for number, added in tokenizer.get_added_tokens_decoder().items() if added.special}


def _tokens(tokenizer: Tokenizer, card: EncoderCard, vocabulary: Sequence[str]) -> list[int]:
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


def _distinct(ids: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    found = np.unique(ids)
    return found[1:] if len(found) and found[0] < 0 else found
