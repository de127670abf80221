"""Score the rows of a slice, and write them to one Parquet part and the bad rows to the quarantine."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lsr_prod.config import ScoreSettings
from lsr_prod.corpus.rows import BadRow, show
from lsr_prod.corpus.slices import Slice
from lsr_prod.scoring.teacher import PairScorer
from lsr_prod.storage import Store
from lsr_prod.tables.quarantine import BadRowWriter
from lsr_prod.training_data.records import read_rows
from lsr_prod.training_data.row_jobs.parts import QUARANTINE, in_batches, read_counts, write_part
from lsr_prod.training_data.rows import TrainingRow

# Score rows: one score per document of a row, or a bad row with its reason.
#
# The reason ``teacher_failed`` is added to those of reading (``training_data.rows``): the teacher raises an exception
# for
# a document of the row, or returns a score that is not finite.


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
        """Return whether the score of the positive is above those of all negatives."""
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


SCHEMA = pa.schema([("query", pa.string()), ("documents", pa.list_(pa.string())), ("scores", pa.list_(pa.float32()))])
"""Columns of a part: training data of kind scores."""

_COUNTS = b"lsr_prod.scored"
_AHEAD = 512  # rows whose pairs are sorted by length together


@dataclass(frozen=True, slots=True)
class ScoreReport:
    """Counts of a scored slice.

    Attributes:
        rows: rows of the slice.
        made: rows of the part.
        pairs: total number of scores in the part.
        ranked: rows of the part with at least one negative.
        positive_first: rows of these whose positive scores above every negative.
        quarantined: bad rows by reason.
    """

    rows: int
    made: int
    pairs: int
    ranked: int
    positive_first: int
    quarantined: Counter[str]

    def to_json(self) -> dict[str, Any]:
        """Return the form stored in the footer, equal in every run."""
        return {
            "rows": self.rows,
            "scored": self.made,
            "pairs": self.pairs,
            "ranked": self.ranked,
            "positive_first": self.positive_first,
            "quarantined": dict(sorted(self.quarantined.items())),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "ScoreReport":
        """Read what ``to_json`` wrote."""
        rows, made, pairs = value["rows"], value["scored"], value["pairs"]
        return cls(rows, made, pairs, value["ranked"], value["positive_first"], Counter[str](value["quarantined"]))


def score_slice(
    number: int, piece: Slice, scorer: PairScorer, settings: ScoreSettings, store: Store, plan: str
) -> ScoreReport:
    """Score a slice, then write its quarantine and its part."""
    scorer.forget()
    bad = BadRowWriter(store.child(QUARANTINE), plan, number)
    tables: list[pa.Table] = []
    rows = pairs = ranked = first = 0
    for batch in in_batches(_scored(piece, scorer, settings, store.options), _AHEAD):
        good: list[ScoredRow] = []
        for position, row in batch:
            rows += 1
            if isinstance(row, BadRow):
                bad.add(row, ordinal=piece.ordinal, key=piece.file.key, source=piece.file.location, position=position)
            else:
                good.append(row)
        pairs += sum(len(row.documents) for row in good)
        ranked += sum(len(row.documents) > 1 for row in good)
        first += sum(len(row.documents) > 1 and row.positive_first for row in good)
        tables.append(_table(good))
    table = pa.concat_tables([SCHEMA.empty_table(), *tables])
    report = ScoreReport(rows, table.num_rows, pairs, ranked, first, bad.reasons)
    bad.flush()
    write_part(store, number, table, report.to_json(), key=_COUNTS)
    return report


def read_report(store: Store, number: int) -> ScoreReport:
    """Read the counts of a finished slice from the footer of its part.

    Raises:
        ArtifactError: the file is damaged, or is not a part of scored rows.
    """
    return ScoreReport.from_json(read_counts(store, number, key=_COUNTS, made="scored"))


def _scored(
    piece: Slice, scorer: PairScorer, settings: ScoreSettings, options: dict[str, str]
) -> Iterator[tuple[int, ScoredRow | BadRow]]:
    """Yield (position, row); batches start at the slice, so every run makes the same ones."""
    for batch in in_batches(read_rows(piece, settings.data, options, needs_negative=False), _AHEAD):
        good = [row for _, row in batch if isinstance(row, TrainingRow)]
        scored = iter(score_rows(good, scorer))
        yield from ((at, row if isinstance(row, BadRow) else next(scored)) for at, row in batch)


def _table(rows: Sequence[ScoredRow]) -> pa.Table:
    columns = {
        "query": [row.query for row in rows],
        "documents": [list(row.documents) for row in rows],
        "scores": [list(row.scores) for row in rows],
    }
    return pa.table(columns, schema=SCHEMA)
