"""Scoring job: validate all inputs, count the rows, score the unfinished slices (``data.row_jobs``).

One score per document of a row, or a bad row. The reason ``teacher_failed`` is added to those of reading
(``data.rows``): the teacher raises an exception for a document of the row, or returns a score that is not finite.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lsr_prod.config import Deployment, ScoreSettings
from lsr_prod.corpus.pinned_file import Slice
from lsr_prod.corpus.source_rows import BadRow, show
from lsr_prod.storage import Store
from lsr_prod.storage.formats.digests import field_values
from lsr_prod.training.data import row_jobs, row_parts, schemas
from lsr_prod.training.data.training_rows import TrainingRow, cut_data, field_errors, pin_files, read_rows

if TYPE_CHECKING:  # imports torch, which the tasks that count rows do without
    from lsr_prod.training.scoring.teacher import PairScorer, PinnedModel

_AHEAD = 512  # rows whose pairs are sorted by length together
SCORED = row_parts.PartFormat("scored", counts=("pairs", "ranked", "positive_first"), batch=_AHEAD)
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

    scorer: "PairScorer"
    settings: ScoreSettings


def score_training_rows(deployment: Deployment) -> Mapping[str, Any]:
    """Score the rows of ``score.data`` with the teacher of ``score.teacher``; see ``RowJob.run``."""
    return make_job(deployment).run(deployment)


def make_job(deployment: Deployment) -> row_jobs.RowJob:
    """Validate every setting and input, and open the teacher once on this machine's CPU; nothing is written."""
    from lsr_prod.training.scoring.teacher import PinnedModel, validate_teacher

    settings, options = deployment.score, deployment.storage.options
    assert settings is not None
    slices = _slices(settings, options)
    model = PinnedModel.of(settings.teacher.model, options, field="score.teacher.model")

    job = row_jobs.RowJob(
        kind=_SCORING,
        settings=settings,
        output=Store(settings.output, options),
        slices=slices,
        plan={
            "settings": row_jobs.decisive_settings(settings, {"teacher": {"model"}}),
            "model": model.digest,
            "slices": row_jobs.identities(slices),
        },
        opened=lambda *_: partial(_open_scorer, settings, model),
        pins={"model": model.digest},
        facts={"teacher": settings.teacher.kind, "model_digest": model.digest},
        use_gpu=settings.use_gpu,
    )
    if job.reserved.manifest() is None:
        validate_teacher(model.open(), settings.teacher, field="score.teacher")
    return job


def count_slice(piece: Slice, settings: ScoreSettings, options: dict[str, str]) -> row_jobs.Survey:
    """Count the rows of a slice, and its bad rows by reason."""
    rows, bad = 0, Counter[str]()
    for _, row in read_rows(piece, settings.data, options, needs_negative=False):
        rows += 1
        if isinstance(row, BadRow):
            bad[row.reason] += 1
    return row_jobs.Survey(rows, bad)


def _measures(counts: Mapping[str, Any]) -> dict[str, Any]:
    share = counts["positive_first"] / counts["ranked"] if counts["ranked"] else None
    return {"pairs": counts["pairs"], "positive_first_share": share}


def _slices(settings: ScoreSettings, options: dict[str, str]) -> list[Slice]:
    with field_errors("score.data"):
        files = pin_files(settings.data, options)
        schemas.check_schemas(files, settings.data, options)
        return list(cut_data(files, settings.data, settings.slice_kilobytes * 1000, options))


def _open_scorer(settings: ScoreSettings, model: "PinnedModel") -> RowScorer:
    from lsr_prod.training.scoring.teacher import open_teacher

    scorer = open_teacher(
        model.open(), settings.teacher, batch_tokens=settings.batch_tokens, field="score.teacher",
        use_gpu=settings.use_gpu, threads=settings.threads_per_actor,
    )  # fmt: skip
    return RowScorer(scorer, settings)


def score_slice(opened: RowScorer, store: Store, plan: str, number: int, piece: Slice) -> row_parts.PartReport:
    """Score a slice, then write its quarantine and its part."""
    opened.scorer.forget()
    return SCORED.write(store, plan, number, piece, _scored(piece, opened, store.options), _table)


def score_rows(rows: Sequence[TrainingRow], scorer: "PairScorer") -> list[ScoredRow | BadRow]:
    """Score all documents of some rows in common batches; return one row per row, in order."""
    scores, failed = scorer.score([(row.query or "", document) for row in rows for document in row.documents])
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
    for batch in row_parts.in_batches(read_rows(piece, opened.settings.data, options, needs_negative=False), _AHEAD):
        scored = iter(score_rows([row for _, row in batch if isinstance(row, TrainingRow)], opened.scorer))
        for at, row in batch:
            yield at, row if isinstance(row, BadRow) else next(scored), Counter()


def _table(rows: Sequence[ScoredRow]) -> pa.Table:
    return pa.Table.from_pylist([field_values(row) for row in rows], SCHEMA)


_SCORING = row_jobs.RowJobKind(
    section="score",
    inputs="another model",
    doing="scoring training rows",
    format=SCORED,
    unit="pairs",
    work=lambda report: report.counts["pairs"],
    survey=count_slice,
    make=score_slice,
    measures=_measures,
    gpu_setting="score.use_gpu",
)
