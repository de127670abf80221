"""Select the negatives of a row among the hits of its query."""

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
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


RULES = ("skipped", "positive", "known_positive", "empty", "false_negative", "unscored", "duplicate", "not_sampled")
"""Reasons to drop a hit, in the order of evaluation; a hit counts for the first rule that applies."""


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
    is_positive: Callable[[Candidate], bool],
    is_known: Callable[[Candidate], bool],
    score_of: Callable[[Candidate], float | None],
    bound: float,
    row: str,
) -> Choice:
    """Apply the rules to the hits of one query.

    A hit with the same text as a positive or a false negative is dropped by the same rule, whatever its id and rank.
    """
    dropped: Counter[str] = Counter()
    texts = [normalized(hit.text) for hit in hits]
    positive = {text for hit, text in zip(hits, texts, strict=True) if is_positive(hit)}
    known = {text for hit, text in zip(hits, texts, strict=True) if is_known(hit)}
    scores = [score_of(hit) for hit in hits]
    false = {text for score, text in zip(scores, texts, strict=True) if score is not None and score >= bound}
    left: list[Candidate] = []
    taken: set[str] = set()

    def rule_of(rank: int) -> str | None:
        hit, text, score = hits[rank], texts[rank], scores[rank]
        if rank < settings.skip:
            return "skipped"
        if text in positive and (text or is_positive(hit)):
            return "positive"
        if text in known and (text or is_known(hit)):
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
    chosen = left[: settings.negatives] if settings.sample == "top" else _sample(left, settings, row)
    dropped["not_sampled"] += len(left) - len(chosen)
    return Choice(tuple(chosen), +dropped)


def _sample(left: Sequence[Candidate], settings: MineSettings, row: str) -> list[Candidate]:
    """Return the candidates with the smallest keys: a random sample that is the same on every machine."""
    order = sorted(range(len(left)), key=lambda i: pair_key(f"{settings.seed} {row}", left[i].doc_id))
    return [left[i] for i in sorted(order[: settings.negatives])]
