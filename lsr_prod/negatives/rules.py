"""Which hits become the negatives of a row."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lsr_prod.config import MineSettings
from lsr_prod.negatives.keys import normalised, pair_key

__all__ = ["RULES", "Candidate", "Choice", "choose", "highest_score"]

RULES = ("skipped", "positive", "known_positive", "empty", "false_negative", "unscored", "duplicate", "not_sampled")
"""Why a hit is no negative, in the order in which they are asked; a hit counts for the first that applies."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A hit.

    Attributes:
        doc_id: the document.
        text: its stored text.
        score: by the index.
    """

    doc_id: str
    text: str
    score: float


@dataclass(frozen=True, slots=True)
class Choice:
    """What became of the hits of a row.

    Attributes:
        negatives: those that were taken, by falling score of the index.
        dropped: how many were not, by rule.
    """

    negatives: tuple[Candidate, ...]
    dropped: Counter[str]


def highest_score(positive: float, settings: MineSettings) -> float:
    """The score from which on a candidate is a false negative.

    A ratio r stands for positive - (1 - r) |positive|, which is r x positive where scores are positive, and still
    below the positive where a teacher's are not.
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
    judged: Callable[[Candidate], float | None],
    bound: float,
    row: str,
) -> Choice:
    """Apply the rules to the hits of one query.

    A hit with the text of a positive or of a false negative is dropped like that one, whatever its id and rank.

    Args:
        hits: by falling score.
        settings: skip, negatives, sample and seed, and what becomes of candidates without a score.
        is_positive: whether a hit is the positive of the row.
        is_known: whether a hit is a positive of the same query in another row.
        judged: the score to hold against ``bound``; None: there is none.
        bound: a candidate that is judged this or higher is a false negative.
        row: names the row, for the draw.
    """
    dropped: Counter[str] = Counter()
    texts = [normalised(hit.text) for hit in hits]
    positive = {text for hit, text in zip(hits, texts, strict=True) if is_positive(hit)}
    known = {text for hit, text in zip(hits, texts, strict=True) if is_known(hit)}
    scores = [judged(hit) for hit in hits]
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
    chosen = left[: settings.negatives] if settings.sample == "top" else _drawn(left, settings, row)
    dropped["not_sampled"] += len(left) - len(chosen)
    return Choice(tuple(chosen), +dropped)


def _drawn(left: Sequence[Candidate], settings: MineSettings, row: str) -> list[Candidate]:
    """The candidates with the least keys: a draw that needs no generator, the same on every machine."""
    order = sorted(range(len(left)), key=lambda i: pair_key(f"{settings.seed} {row}", left[i].doc_id))
    return [left[i] for i in sorted(order[: settings.negatives])]
