"""Score the rows of a slice, and write them to one Parquet part and the bad rows to the quarantine."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lsr_prod.config import ScoreSettings
from lsr_prod.corpus.rows import BadRow, show
from lsr_prod.corpus.slices import Slice
from lsr_prod.storage import Store
from lsr_prod.training.data.row_jobs.parts import PartFormat, PartReport, in_batches
from lsr_prod.training.data.rows import TrainingRow, read_rows
from lsr_prod.training.scoring.teacher import PairScorer

# Score rows: one score per document of a row, or a bad row with its reason.
#
# The reason ``teacher_failed`` is added to those of reading (``training_data.rows``): the teacher raises an exception
# for a document of the row, or returns a score that is not finite.

_AHEAD = 512  # rows whose pairs are sorted by length together
SCORED = PartFormat("scored", counts=("pairs", "ranked", "positive_first"), batch=_AHEAD)
SCHEMA = pa.schema([("query", pa.string()), ("documents", pa.list_(pa.string())), ("scores", pa.list_(pa.float32()))])
"""Columns of a part: training data of kind scores."""


@dataclass(frozen=True, slots=True)
class ScoredRow:
    """Output row."""

    query: str  # text of the query
    documents: tuple[str, ...]  # the positive, then the negatives
    scores: tuple[float, ...]  # of the teacher, one per document; float32 values

    @property
    def counts(self) -> Mapping[str, int]:
        """Number of scores; 1 if it has a negative; 1 if then the score of the positive is above all others."""
        ranked = len(self.documents) > 1
        first = ranked and all(score < self.scores[0] for score in self.scores[1:])
        return {"pairs": len(self.documents), "ranked": int(ranked), "positive_first": int(first)}


@dataclass(frozen=True, slots=True)
class RowScorer:
    """An opened teacher with the section ``score``."""

    scorer: PairScorer
    settings: ScoreSettings


def score_slice(opened: RowScorer, store: Store, plan: str, number: int, piece: Slice) -> PartReport:
    """Score a slice, then write its quarantine and its part."""
    opened.scorer.forget()
    return SCORED.write(store, plan, number, piece, _scored(piece, opened, store.options), _table)


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


def _scored(
    piece: Slice, opened: RowScorer, options: dict[str, str]
) -> Iterator[tuple[int, ScoredRow | BadRow, Counter[str]]]:
    """Yield (position, row, nothing dropped); batches start at the slice, so every run makes the same ones."""
    for batch in in_batches(read_rows(piece, opened.settings.data, options, needs_negative=False), _AHEAD):
        good = [row for _, row in batch if isinstance(row, TrainingRow)]
        scored = iter(score_rows(good, opened.scorer))
        for at, row in batch:
            yield at, row if isinstance(row, BadRow) else next(scored), Counter()


def _table(rows: Sequence[ScoredRow]) -> pa.Table:
    columns = {
        "query": [row.query for row in rows],
        "documents": [list(row.documents) for row in rows],
        "scores": [list(row.scores) for row in rows],
    }
    return pa.table(columns, schema=SCHEMA)
