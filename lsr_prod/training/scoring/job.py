"""Scoring job: validate all inputs, count the rows, score the unfinished slices (``row_jobs.job``)."""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from lsr_prod.config import Deployment, ScoreSettings
from lsr_prod.corpus.rows import BadRow
from lsr_prod.corpus.slices import Slice
from lsr_prod.storage import Store
from lsr_prod.training.data.row_jobs.job import RowJob, RowJobKind, Survey, decisive_settings, identities
from lsr_prod.training.data.rows import cut_data, field_errors, pin_files, read_rows
from lsr_prod.training.data.schemas import check_schemas
from lsr_prod.training.scoring.part import SCORED, RowScorer, score_slice
from lsr_prod.training.scoring.teacher import PinnedModel, open_on_actor, validate_teacher


def score_training_rows(deployment: Deployment) -> Mapping[str, Any]:
    """Score the rows of ``score.data`` with the teacher of ``score.teacher``; see ``RowJob.run``.

    Returns:
        A flat summary: rows, scored rows, quarantined rows by reason, share of rows whose positive scores highest,
        pairs/s of this run.
    """
    return make_job(deployment).run(deployment)


def make_job(deployment: Deployment) -> RowJob:
    """Validate every setting and input, and open the teacher once on this machine's CPU; nothing is written."""
    settings, options = deployment.score, deployment.storage.options
    assert settings is not None
    slices = _slices(settings, options)
    model = PinnedModel.of(settings.teacher.model, options, field="score.teacher.model")

    def opened(*_: Any) -> Callable[[], RowScorer]:
        return partial(_open_scorer, settings, model)

    job = RowJob(
        kind=_SCORING,
        settings=settings,
        output=Store(settings.output, options),
        slices=slices,
        plan={
            "settings": decisive_settings(settings, {"teacher": {"model"}}),
            "model": model.digest,
            "slices": identities(slices),
        },
        opened=opened,
        pins={"model": model.digest},
        facts={"teacher": settings.teacher.kind, "model_digest": model.digest},
        use_gpu=settings.use_gpu,
    )
    if job.reserved.manifest() is None:
        validate_teacher(model.open(), settings.teacher, field="score.teacher")
    return job


def count_slice(piece: Slice, settings: ScoreSettings, options: dict[str, str]) -> Survey:
    """Count the rows of a slice, and its bad rows by reason."""
    rows, bad = 0, Counter[str]()
    for _, row in read_rows(piece, settings.data, options, needs_negative=False):
        rows += 1
        if isinstance(row, BadRow):
            bad[row.reason] += 1
    return Survey(rows, bad)


def _measures(counts: Mapping[str, Any]) -> dict[str, Any]:
    ranked = counts["ranked"]
    return {
        "pairs": counts["pairs"],
        "positive_first_share": counts["positive_first"] / ranked if ranked else None,
    }


_SCORING = RowJobKind(
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


def _slices(settings: ScoreSettings, options: dict[str, str]) -> list[Slice]:
    with field_errors("score.data"):
        files = pin_files(settings.data, options)
        check_schemas(files, settings.data, options)
        return list(cut_data(files, settings.data, settings.slice_kilobytes * 1000, options))


def _open_scorer(settings: ScoreSettings, model: PinnedModel) -> RowScorer:
    scorer = open_on_actor(
        model.open(),
        settings.teacher,
        batch_tokens=settings.batch_tokens,
        field="score.teacher",
        use_gpu=settings.use_gpu,
        threads=settings.threads_per_actor,
    )
    return RowScorer(scorer, settings)
