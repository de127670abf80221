"""Score rows: one score per document of a row, or a bad row with its reason.

The reason ``teacher_failed`` is added to those of reading (``training_data.rows``): the teacher raises an exception for
a document of the row, or returns a score that is not finite.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from lsr_prod.corpus.rows import BadRow, show
from lsr_prod.scoring.teacher import PairScorer
from lsr_prod.training_data.rows import TrainingRow


@dataclass(frozen=True, slots=True)
class ScoredRow:
    """Output row.

    Attributes:
        query: text of the query.
        documents: the positive, then the negatives.
        scores: of the teacher, one per document; float32 values.
    """

    query: str
    documents: tuple[str, ...]
    scores: tuple[float, ...]

    @property
    def positive_first(self) -> bool:
        """Whether the positive scores above every negative."""
        return all(score < self.scores[0] for score in self.scores[1:])


def score_rows(rows: Sequence[TrainingRow], scorer: PairScorer) -> list[ScoredRow | BadRow]:
    """Score all documents of some rows in common batches.

    Returns:
        One row per row, in order.
    """
    pairs = [(row.query or "", document) for row in rows for document in row.documents]
    scores, failed = scorer.score(pairs)
    scored: list[ScoredRow | BadRow] = []
    start = 0
    for row in rows:
        stop = start + len(row.documents)
        bad = next((i for i in range(start, stop) if i in failed), None)
        if bad is None:
            scored.append(ScoredRow(row.query or "", row.documents, tuple(scores[start:stop].tolist())))
        else:
            scored.append(_bad(row, bad - start, failed[bad]))
        start = stop
    return scored


def _bad(row: TrainingRow, place: int, problem: str) -> BadRow:
    detail = f"document {place} of the row (0 is the positive): {problem}"
    return BadRow("teacher_failed", detail, None, show({"query": row.query, "documents": list(row.documents)}))
