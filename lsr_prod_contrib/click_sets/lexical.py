"""Matched-term ratio of queries and documents (3.5.1), and the documents with the highest ratio."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from lsr_prod.inference.terms.analysis import distinct_words

Ints = npt.NDArray[np.int64]

_PAIRS = 65_536


@dataclass(frozen=True, slots=True)
class TermRows:
    """Distinct words of n texts."""

    offsets: Ints  # int64 [n + 1]
    terms: Ints  # int64, numbers of words, rising inside a row

    def __len__(self) -> int:
        """Return the number of texts."""
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Ints:
        """Number of distinct words of every text."""
        return np.diff(self.offsets)

    def row(self, text: int) -> Ints:
        """Return the words of one text."""
        return self.terms[self.offsets[text] : self.offsets[text + 1]]

    def take(self, rows: Ints, vocabulary: int) -> csr_array:
        """Return some rows as a matrix of ones [len(rows), vocabulary]."""
        matrix = csr_array(
            (np.ones(len(self.terms), np.int32), self.terms, self.offsets), shape=(len(self), max(vocabulary, 1))
        )
        return matrix[rows]


def query_vocabulary(queries: Iterable[str]) -> dict[str, int]:
    """Return the words of queries, numbered in order: only words of queries can match."""
    words = sorted({word for query in queries for word in distinct_words(query)})
    return {word: number for number, word in enumerate(words)}


def term_rows(texts: Iterable[str], vocabulary: Mapping[str, int]) -> TermRows:
    """Split texts into the words of a vocabulary; other words are left out.

    Words are those of ``terms.analysis``, which BM25 and Boolean queries use: letters and digits, lowercase, stemmed.
    """
    lengths, terms = [0], list[int]()
    for text in texts:
        found = sorted({vocabulary[word] for word in distinct_words(text) if word in vocabulary})
        lengths.append(len(found))
        terms += found
    return TermRows(np.cumsum(lengths).astype(np.int64), np.array(terms, np.int64))


def matched_terms(queries: TermRows, documents: TermRows, query: Ints, document: Ints, vocabulary: int) -> Ints:
    """Return how many distinct words of a query its document has, for pairs of rows.

    Returns:
        int64 [n].
    """
    counts = [np.zeros(0, np.int64)]
    for start in range(0, len(query), _PAIRS):
        some = slice(start, start + _PAIRS)
        both = queries.take(query[some], vocabulary).multiply(documents.take(document[some], vocabulary))
        counts.append(np.asarray(both.sum(axis=1), np.int64).ravel())
    return np.concatenate(counts)


@lru_cache(maxsize=4096)
def required_matches(words: int, ratio: float) -> int:
    """Return the smallest number of matched words whose share of ``words`` is above ``ratio``; ratio < 1."""
    return next(matched for matched in range(1, words + 1) if matched / words > ratio)


class WordPostings:
    """Documents of every word."""

    def __init__(self, documents: TermRows, vocabulary: int) -> None:
        rows = np.repeat(np.arange(len(documents), dtype=np.int64), documents.lengths)
        order = np.argsort(documents.terms, kind="stable")
        self._documents = rows[order]
        self._offsets = np.concatenate([[0], np.cumsum(np.bincount(documents.terms, minlength=vocabulary))])

    def matching(self, words: Ints, required: int) -> tuple[Ints, Ints]:
        """Return the documents that have enough of some words, rising, and how many words each has.

        A document with ``required`` of n words has one of the n - required + 1 rarest: the postings of the other,
        frequent words are only searched for documents that were found with these.
        """
        lists = sorted((self._list(word) for word in words), key=len)
        rare, frequent = lists[: len(words) - required + 1], lists[len(words) - required + 1 :]
        found, counts = np.unique(np.concatenate(rare), return_counts=True)
        for postings in frequent:
            place = np.searchsorted(postings, found)
            inside = place < len(postings)
            counts[inside] += postings[place[inside]] == found[inside]
        enough = counts >= required
        return found[enough], counts[enough].astype(np.int64)

    def _list(self, word: int) -> Ints:
        return self._documents[self._offsets[word] : self._offsets[word + 1]]


def document_texts(titles: Sequence[str], texts: Sequence[str]) -> list[str]:
    """Return title and text of documents as one text each, as the default settings of a corpus join them."""
    return [f"{title} {text}" if title and text else title or text for title, text in zip(titles, texts, strict=True)]
