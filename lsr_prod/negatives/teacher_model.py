"""A teacher that scores while negatives are mined: the positive and all hits of a batch of queries at once."""

from collections.abc import Iterable

from lsr_prod.scoring.teacher import PairScorer


class TeacherModel:
    """Scores of the current batch."""

    def __init__(self, scorer: PairScorer) -> None:
        self._scorer = scorer
        self._scores: dict[tuple[str, str], float] = {}

    def score(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Score pairs of query and text; the scores of the batch before are dropped."""
        distinct = list(dict.fromkeys(pairs))
        scores, failed = self._scorer.score(distinct)
        self._scores = {pair: float(scores[i]) for i, pair in enumerate(distinct) if i not in failed}

    def of_texts(self, query: str, text: str) -> float | None:
        """Return the score of a text for a query; None if the teacher failed on it."""
        return self._scores.get((query, text))

    def forget(self) -> None:
        """Drop everything kept of earlier slices, so that a part does not depend on them."""
        self._scores = {}
        self._scorer.forget()
