"""Scoring job: validate all inputs, count the rows, score the unfinished slices, verify counts, write the manifest."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray
import torch

from lsr_prod.cluster import ray_session
from lsr_prod.cluster.nodes import require_shared_folders
from lsr_prod.cluster.workers import Workers
from lsr_prod.config import Deployment, ScoreSettings
from lsr_prod.config.training_data import TrainingDataSettings
from lsr_prod.corpus.on_nodes import require_source_on_nodes
from lsr_prod.corpus.rows import BadRow
from lsr_prod.corpus.slices import Slice
from lsr_prod.errors import ConfigError
from lsr_prod.formats.digest import digest_json
from lsr_prod.logs import get_log
from lsr_prod.scoring.part import ScoreReport, read_report, score_slice
from lsr_prod.scoring.pinned_model import PinnedModel
from lsr_prod.scoring.teacher import PairScorer, open_teacher, validate_teacher
from lsr_prod.storage import Store
from lsr_prod.training_data.records import cut_data, pin_files, read_rows
from lsr_prod.training_data.row_jobs.accounting import (
    Progress,
    check_bad_rows,
    check_lost_rows,
    finished_reports,
    seal,
)
from lsr_prod.training_data.row_jobs.output import RowOutput
from lsr_prod.training_data.row_jobs.parts import QUARANTINE
from lsr_prod.training_data.row_jobs.pool import RESTARTS, run_slices
from lsr_prod.training_data.schemas import check_schemas

# Settings that decide where and how fast the job runs, and do not change any row.
_ELSEWHERE = {"output", "actors", "threads_per_actor", "slice_kilobytes"}
_ELSEWHERE_OF_DATA = {"paths", "format", "version", "max_bad_fraction"}


@dataclass(frozen=True, slots=True)
class ScorePlan:
    """Validated plan of a scoring run.

    Attributes:
        settings: the section ``score``.
        store: the output folder.
        slices: slices of the rows; the position of a slice is the number of its part.
        model: the pinned model of the teacher.
    """

    settings: ScoreSettings
    store: Store
    slices: tuple[Slice, ...]
    model: PinnedModel

    def to_json(self) -> dict[str, Any]:
        """Return everything that decides the rows; its digest identifies the plan."""
        left_out: Any = {**dict.fromkeys(_ELSEWHERE, True), "data": _ELSEWHERE_OF_DATA, "teacher": {"model"}}
        return {
            "settings": self.settings.model_dump(mode="json", exclude=left_out),
            "model": self.model.digest,
            "slices": [[piece.file.identity(), piece.start, piece.stop] for piece in self.slices],
        }

    @property
    def digest(self) -> str:
        """sha256 of the plan."""
        return digest_json(self.to_json())

    @property
    def output(self) -> RowOutput:
        """The output folder, reserved for this plan."""
        return RowOutput(self.store, self.digest, "score.output", "another model")


def make_plan(deployment: Deployment) -> ScorePlan:
    """Validate every setting and input, and open the teacher once on this machine's CPU; nothing is written."""
    settings, options = deployment.score, deployment.storage.options
    assert settings is not None
    plan = ScorePlan(
        settings,
        Store(settings.output, options),
        tuple(_slices(settings, options)),
        PinnedModel.of(settings.teacher.model, options, field="score.teacher.model"),
    )
    if plan.output.manifest() is None:
        validate_teacher(plan.model.open(), settings.teacher, field="score.teacher")
    return plan


def _slices(settings: ScoreSettings, options: dict[str, str]) -> list[Slice]:
    try:
        files = pin_files(settings.data, options)
        check_schemas(files, settings.data, options)
        return list(cut_data(files, settings.data, settings.slice_kilobytes * 1000, options))
    except ConfigError as error:
        field = error.field.removeprefix("source.").removeprefix("data.")
        raise ConfigError(f"score.data.{field}", error.problem, error.remedy) from error


log = get_log(__name__)


def score_training_rows(deployment: Deployment) -> Mapping[str, Any]:
    """Score the rows of ``score.data`` with the teacher of ``score.teacher``.

    The next run resumes an interrupted one; running a finished job again only returns its summary.

    Returns:
        A flat summary: rows, scored rows, quarantined rows by reason, share of rows whose positive scores highest,
        pairs/s of this run.
    """
    plan = make_plan(deployment)
    if done := plan.output.manifest():
        return _summary(plan, done["counts"], reused=len(plan.slices), seconds=0.0, actors=0)
    with ray_session(deployment.ray):
        from lsr_prod.training_data.row_jobs.pool import pool_size

        settings = plan.settings
        actors = pool_size("score", threads=settings.threads_per_actor, most=settings.actors, gpu=settings.use_gpu)
        require_source_on_nodes(dict.fromkeys(piece.file for piece in plan.slices), field="score.data.paths")
        require_shared_folders({"score.output": plan.store.uri})
        expected = _count_slices(plan, deployment)
        plan.output.reserve(plan.to_json())
        return _score(plan, expected, actors)


def count_slice(piece: Slice, data: TrainingDataSettings, options: dict[str, str]) -> tuple[int, Counter[str]]:
    """Return the number of rows of a slice, and of its bad rows by reason."""
    rows, bad = 0, Counter[str]()
    for _, row in read_rows(piece, data, options, needs_negative=False):
        rows += 1
        if isinstance(row, BadRow):
            bad[row.reason] += 1
    return rows, bad


def _count_slices(plan: ScorePlan, deployment: Deployment) -> list[int]:
    """Count the rows of every slice, to reject bad data before anything is scored or written."""
    data = plan.settings.data
    items = [(piece, data, plan.store.options) for piece in plan.slices]
    with Workers(deployment.ray) as workers:
        found = dict(workers.run(count_slice, items, size=sum(piece.size for piece in plan.slices)))
    expected = [found[number][0] for number in range(len(items))]
    bad = sum((counts for _, counts in found.values()), Counter[str]())
    if not sum(expected):
        raise ConfigError("score.data.paths", "the files contain no rows", "give files that contain training rows")
    log.info("counted", extra={"fields": {"rows": sum(expected), "bad": dict(bad), "slices": len(items)}})
    check_bad_rows(sum(expected), bad, limit=data.max_bad_fraction, section="score")
    return expected


def _score(plan: ScorePlan, expected: Sequence[int], actors: int) -> Mapping[str, Any]:
    from lsr_prod.scoring.job import score_slices

    reports = finished_reports(plan.store, len(plan.slices), read_report)
    finished = len(reports)
    todo = [number for number in range(len(plan.slices)) if number not in reports]
    actors, began = min(actors, len(todo)), time.monotonic()
    if todo:
        progress = Progress(sum(expected[number] for number in todo), unit="pairs")
        log.info("scoring", extra={"fields": {"slices": len(todo), "reused": finished, "actors": actors}})
        for number, report in score_slices(plan, todo, actors):
            reports[number] = report
            progress.add(report, report.pairs)
            _check_bad_rows(plan, expected, reports)
    seconds = time.monotonic() - began
    check_lost_rows(plan.store, expected, reports)
    _check_bad_rows(plan, expected, reports)
    counts = _count(reports)
    manifest = {"plan": plan.digest, "model": plan.model.digest, "counts": counts}
    seal(plan.store, manifest, [reports[number].made for number in range(len(plan.slices))])
    pairs = sum(reports[number].pairs for number in todo)
    return _summary(plan, counts, reused=finished, seconds=seconds, actors=actors, pairs=pairs)


def _check_bad_rows(plan: ScorePlan, expected: Sequence[int], reports: Mapping[int, ScoreReport]) -> None:
    """Compare the bad rows found so far with the limit for all rows, so that a bad teacher ends the job early."""
    bad = sum((report.quarantined for report in reports.values()), Counter[str]())
    check_bad_rows(sum(expected), bad, limit=plan.settings.data.max_bad_fraction, section="score")


def _count(reports: Mapping[int, ScoreReport]) -> dict[str, Any]:
    quarantined = sum((report.quarantined for report in reports.values()), Counter[str]())
    return {
        "rows": sum(report.rows for report in reports.values()),
        "scored": sum(report.made for report in reports.values()),
        "pairs": sum(report.pairs for report in reports.values()),
        "ranked": sum(report.ranked for report in reports.values()),
        "positive_first": sum(report.positive_first for report in reports.values()),
        "quarantined": dict(sorted(quarantined.items())),
    }


def _summary(
    plan: ScorePlan, counts: Mapping[str, Any], *, reused: int, seconds: float, actors: int, pairs: int = 0
) -> Mapping[str, Any]:
    return {
        "rows": counts["rows"],
        "scored": counts["scored"],
        "pairs": counts["pairs"],
        "positive_first_share": counts["positive_first"] / counts["ranked"] if counts["ranked"] else None,
        "quarantined": sum(counts["quarantined"].values()),
        **{f"quarantined.{reason}": number for reason, number in counts["quarantined"].items()},
        "parts": len(plan.slices),
        "parts_reused": reused,
        "actors": actors,
        "threads_per_actor": plan.settings.threads_per_actor,
        "seconds": seconds,
        "pairs_per_s": pairs / seconds if seconds else 0.0,
        "teacher": plan.settings.teacher.kind,
        "model_digest": plan.model.digest,
        "plan": plan.digest,
        "output": plan.store.uri,
        "quarantine": f"{plan.store.uri.rstrip('/')}/{QUARANTINE}",
    }


def score_slices(plan: ScorePlan, todo: Sequence[int], actors: int) -> Iterator[tuple[int, ScoreReport]]:
    """Yield (slice number, report) of the slices in ``todo``, in the order in which they finish."""
    settings = plan.settings
    actor: Any = ray.remote(_ScoreActor).options(
        num_cpus=settings.threads_per_actor,
        num_gpus=int(settings.use_gpu),
        max_restarts=RESTARTS,
        max_task_retries=RESTARTS,
    )
    scorers = [actor.remote(settings, plan.model, plan.store, plan.digest) for _ in range(min(actors, len(todo)))]
    yield from run_slices(
        scorers,
        todo,
        lambda scorer, number: scorer.score.remote(number, plan.slices[number]),
        task="scoring training rows",
    )


class _ScoreActor:
    """Actor that opens the teacher with its first slice, then scores one slice at a time."""

    def __init__(self, settings: ScoreSettings, model: PinnedModel, output: Store, plan: str) -> None:
        self._settings, self._model, self._output, self._plan = settings, model, output, plan
        self._scorer: PairScorer | None = None  # an error of its constructor would end the actor

    def score(self, number: int, piece: Slice) -> ScoreReport:
        settings = self._settings
        if self._scorer is None:
            torch.set_num_threads(settings.threads_per_actor)
            self._scorer = open_teacher(
                self._model.open(),
                settings.teacher,
                batch_tokens=settings.batch_tokens,
                field="score.teacher",
                device="cuda" if settings.use_gpu else "cpu",
                threads=settings.threads_per_actor,
            )
        return score_slice(number, piece, self._scorer, settings, self._output, self._plan)
