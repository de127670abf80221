"""Select the negatives of a row among the hits of its query.

A query's own positives are found by id, by text, and as hits that hold one, are a part of one, or nearly repeat it:
texts are compared by shingles, three consecutive words each, after NFKC and case folding and without punctuation. A
text of few words has too few shingles: it is compared whole.
"""

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Self
from zlib import crc32

from lsr_prod.config import MineSettings


def normalized(text: str) -> str:
    """Return the text with every run of white space as one space; two texts are the same if these forms are equal."""
    return " ".join(text.split())


def text_key(text: str) -> int:
    """Return the 64-bit key of a text; equal for texts that differ in white space only."""
    return _key("text", normalized(text))


def id_key(doc_id: str) -> int:
    """Return the 64-bit key of a document id."""
    return _key("id", doc_id)


def pair_key(query: str, doc_id: str) -> int:
    """Return the 64-bit key of a pair of query and document."""
    return _key("pair", query, doc_id)


def _key(*parts: str) -> int:
    named = "".join(f"{len(part)}:{part}" for part in parts)  # length prefixes keep different part lists distinct
    return int.from_bytes(hashlib.blake2b(named.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


RULES = (
    "skipped", "positive", "known_positive", "empty", "false_negative", "unscored", "duplicate", "near_positive",
    "not_sampled",
)  # fmt: skip
"""Reasons to drop a hit, in the order of evaluation; a hit counts for the first rule that applies."""
OWN_POSITIVES = ("positive", "known_positive", "near_positive")
"""The rules that drop the query's own positives."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A document that may become a negative, or is the positive."""

    doc_id: str  # id of the document
    text: str  # stored text
    score: float  # score by the index


@dataclass(frozen=True, slots=True)
class Choice:
    """Selected and dropped hits of a row."""

    negatives: tuple[Candidate, ...]  # the selected hits, in descending order of index score
    dropped: Counter[str]  # number of dropped hits by rule


def highest_score(positive: float, settings: MineSettings) -> float:
    """Return the lowest score at which a candidate counts as a false negative.

    A ratio r means positive - (1 - r) |positive|: this is r x positive for positive scores, and remains below the
    score of the positive when a teacher gives negative scores.
    """
    bounds = [float("inf")]
    if (ratio := settings.margin_ratio) is not None:
        bounds.append(ratio * positive if positive >= 0 else positive + (1 - ratio) * positive)
    if settings.margin is not None:
        bounds.append(positive - settings.margin)
    return min(bounds)


def choose(
    hits: Sequence[Candidate],
    *,
    settings: MineSettings,
    positives: Collection[str],
    known: Collection[str],
    is_near: Callable[[Candidate], bool],
    score_of: Callable[[Candidate], float | None],
    bound: float,
    row: str,
) -> Choice:
    """Apply the rules to the hits of one query.

    A hit with the same text as a positive or a false negative is dropped by the same rule, whatever its id and rank.
    ``positives`` has the ids of copies of the positive, ``known`` those of the query's other positives. ``is_near`` is
    the most expensive rule: only the hits that would become negatives are checked.
    """
    dropped: Counter[str] = Counter()
    texts = [normalized(hit.text) for hit in hits]
    named = [(hit.doc_id, text) for hit, text in zip(hits, texts, strict=True) if text]
    same, same_known = ({text for doc_id, text in named if doc_id in ids} for ids in (positives, known))
    scores = [score_of(hit) for hit in hits]
    false = {text for score, text in zip(scores, texts, strict=True) if score is not None and score >= bound}
    left: list[Candidate] = []
    taken: set[str] = set()

    def rule_of(rank: int) -> str | None:
        hit, text, score = hits[rank], texts[rank], scores[rank]
        if rank < settings.skip:
            return "skipped"
        if text in same or hit.doc_id in positives:
            return "positive"
        if text in same_known or hit.doc_id in known:
            return "known_positive"
        if not text:
            return "empty"
        if text in false:
            return "false_negative"
        if score is None and settings.teacher is not None and settings.teacher.unscored == "drop":
            return "unscored"
        return "duplicate" if text in taken else None

    for rank, hit in enumerate(hits):
        if rule := rule_of(rank):
            dropped[rule] += 1
        else:
            left.append(hit)
            taken.add(texts[rank])
    chosen: list[int] = []
    for rank in range(len(left)) if settings.sample == "top" else _shuffled(left, settings, row):
        if len(chosen) == settings.negatives:
            break
        if is_near(left[rank]):
            dropped["near_positive"] += 1
        else:
            chosen.append(rank)
    dropped["not_sampled"] += len(left) - len(chosen) - dropped["near_positive"]
    return Choice(tuple(left[rank] for rank in sorted(chosen)), +dropped)


def _shuffled(left: Sequence[Candidate], settings: MineSettings, row: str) -> list[int]:
    """Return the positions in the order of their keys: a random order that is the same on every machine."""
    return sorted(range(len(left)), key=lambda i: pair_key(f"{settings.seed} {row}", left[i].doc_id))


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
        """Return whether a hit holds the positive, or is a part of it; ``runs``: hashes of its runs of ``run`` words.

        The shared shingles must be at least ``share`` of those of the shorter text. A short positive must be in the hit
        word for word, and be at least ``share`` of its ``further`` words, those that are not words of the query.
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
    """Return whether one of two texts, given by their distinct words, has nearly all words of the other.

    This check of mined negatives does not depend on ``is_own``: it does not compare the order of words.
    """
    fewer = min(len(one), len(other))
    return fewer >= _SHORT and len(set(one).intersection(other)) >= _SAME_WORDS * fewer
