"""Select the negatives of a row among the hits of its query."""

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

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
    """Selected and dropped hits of a row.

    Attributes:
        negatives: the selected hits, in descending order of index score.
        dropped: number of dropped hits by rule.
    """

    negatives: tuple[Candidate, ...]
    dropped: Counter[str]


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
    same = {text for hit, text in zip(hits, texts, strict=True) if text and hit.doc_id in positives}
    same_known = {text for hit, text in zip(hits, texts, strict=True) if text and hit.doc_id in known}
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
