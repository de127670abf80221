"""Find a query's own positives among its hits by text: a hit that holds one, is a part of one, or nearly repeats it.

Texts are compared by shingles, three consecutive words each, after NFKC and case folding and without punctuation. A
text of few words has too few shingles: it is compared whole.
"""

import re
import unicodedata
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Self
from zlib import crc32

_SHINGLE = 3  # words
_SHORT = 8  # words; a text with fewer is compared whole
_SKETCH = 16  # hashes of a sketch
_SAMPLED = 3  # hashes of a sketch that must be compared; fewer may be a common phrase
SKETCH_SIZE = 1 + _SKETCH  # numbers of a sketch
_ALL = 2**32 - 1
_SAME_WORDS = 0.9

# Scripts that do not separate words by spaces: every letter is a word.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WORD = re.compile(rf"[^\W{_UNSPACED}]+|(?=\w)[{_UNSPACED}]")


def words_of(text: str) -> list[str]:
    """Return the words of a text in order, in the form in which texts are compared."""
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def _hashes(words: Sequence[str], size: int = _SHINGLE) -> set[int]:
    """Return the hashes of all runs of ``size`` words, equal in every process."""
    return {crc32(" ".join(run).encode()) for run in zip(*(words[i:] for i in range(size)), strict=False)}


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Shingles of a positive, whole or as a sketch: its smallest hashes, which are a random sample."""

    words: int  # number of words of a short text, whose only hash is that of all its words; otherwise 0
    hashes: frozenset[int]
    limit: int = _ALL  # larger hashes are unknown

    @classmethod
    def of(cls, text: str) -> Self:
        """Return all shingles of a text."""
        words = words_of(text)
        if len(words) < _SHORT:
            return cls(len(words), frozenset(_hashes(words, len(words)) if words else ()))
        return cls(0, frozenset(_hashes(words)))

    @classmethod
    def from_sketch(cls, sketch: Sequence[int]) -> Self:
        """Parse what ``sketch`` returned."""
        words, *hashes = sketch
        distinct = frozenset(hashes)
        if words:
            return cls(words, distinct)
        return cls(0, distinct, _ALL if len(distinct) < _SKETCH else max(distinct))

    def sketch(self) -> list[int]:
        """Return ``SKETCH_SIZE`` numbers below 2**32, however long the text is; see ``from_sketch``."""
        hashes = sorted(self.hashes)[:_SKETCH] or [0]
        return [self.words, *hashes, *hashes[-1:] * (_SKETCH - len(hashes))]

    @property
    def run(self) -> int:
        """Number of words that a hash represents."""
        return self.words or _SHINGLE

    def in_hit(self, runs: Collection[int], further: int, share: float) -> bool:
        """Return whether a hit holds the positive, or is a part of it.

        The shared shingles must be at least ``share`` of those of the shorter text. A short positive must be in the hit
        word for word, and be at least ``share`` of its words that are not words of the query.

        Args:
            runs: the hashes of all runs of ``run`` words of the hit.
            further: number of words of the hit that are not words of the query.
            share: ``mine.own_share``.
        """
        shared = len(self.hashes.intersection(runs))
        if self.words or not shared:
            return shared > 0 and self.words >= share * further
        compared = min(len(self.hashes), sum(one <= self.limit for one in runs))
        return shared >= share * compared and (self.limit == _ALL or compared >= _SAMPLED)


def is_own(hit: str, positives: Collection[Fingerprint], query: Collection[str], share: float) -> bool:
    """Return whether the text of a hit is one of the positives; ``query``: the words of the query."""
    words = words_of(hit)
    further = sum(word not in query for word in words)
    runs = {size: _hashes(words, size) for size in {positive.run for positive in positives}}
    return any(positive.in_hit(runs[positive.run], further, share) for positive in positives)


def has_same_words(one: Collection[str], other: Collection[str]) -> bool:
    """Return whether a text has nearly all words of another, in any order.

    This check of mined negatives does not depend on ``is_own``: it does not compare the order of words.

    Args:
        one: the distinct words of a text.
        other: the distinct words of the other; as in a short text, a few say nothing.
    """
    fewer = min(len(one), len(other))
    return fewer >= _SHORT and len(set(one).intersection(other)) >= _SAME_WORDS * fewer
