"""Mining job: validate all inputs, survey the pairs, mine the unfinished slices, verify counts, write the manifest."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import ray
import torch

from lsr_prod.cluster import ray_session
from lsr_prod.cluster.nodes import require_shared_folders
from lsr_prod.cluster.workers import Workers
from lsr_prod.config import Deployment, MineSettings
from lsr_prod.corpus.on_nodes import require_source_on_nodes
from lsr_prod.corpus.slices import Slice
from lsr_prod.errors import ConfigError
from lsr_prod.logs import get_log
from lsr_prod.negatives.index import MinedIndex
from lsr_prod.negatives.known import KnownPositives, Survey, survey_slice
from lsr_prod.negatives.mine import Miner
from lsr_prod.negatives.part import PartReport, mine_slice, read_report
from lsr_prod.negatives.plan import MinePlan, check_output, make_plan, save_plan
from lsr_prod.negatives.rules import RULES
from lsr_prod.negatives.teacher import TeacherScores, read_scores
from lsr_prod.negatives.teacher_model import TeacherModel
from lsr_prod.scoring.pinned_model import PinnedModel
from lsr_prod.scoring.teacher import open_teacher
from lsr_prod.storage import Store
from lsr_prod.training_data.row_jobs.accounting import (
    Progress,
    check_bad_rows,
    check_lost_rows,
    finished_reports,
    seal,
)
from lsr_prod.training_data.row_jobs.parts import QUARANTINE
from lsr_prod.training_data.row_jobs.pool import RESTARTS, run_slices
from lsr_prod.training_data.row_jobs.pool import pool_size as row_pool_size

log = get_log(__name__)


def mine_negatives(deployment: Deployment) -> Mapping[str, Any]:
    """Mine hard negatives for the pairs of ``mine.data`` with the index of ``mine.index``.

    The next run resumes an interrupted one; running a finished job again only returns its summary.

    Returns:
        A flat summary: rows, mined rows, quarantined rows by reason, dropped hits by rule, queries/s of this run.
    """
    plan = make_plan(deployment)
    if done := check_output(plan):
        return _summary(plan, done["counts"], reused=len(plan.slices), seconds=0.0, actors=0)
    with ray_session(deployment.ray):
        from lsr_prod.negatives.job import pool_size

        actors = pool_size(plan.settings)
        files = dict.fromkeys(piece.file for piece in (*plan.slices, *plan.teacher))
        require_source_on_nodes(files, field="mine.data.paths")
        require_shared_folders({"mine.output": plan.output.uri})
        surveys = _survey(plan, deployment)
        teacher = _read_teacher(plan, deployment)
        save_plan(plan)
        return _mine(plan, surveys, teacher, actors)


def _survey(plan: MinePlan, deployment: Deployment) -> list[Survey]:
    """Survey every slice, to reject bad data before anything is searched or written."""
    settings = plan.settings
    items = [(piece, settings, plan.output.options) for piece in plan.slices]
    size = sum(piece.size for piece in plan.slices)
    with Workers(deployment.ray) as workers:
        found = dict(workers.run(survey_slice, items, size=size))
    surveys = [found[number] for number in range(len(items))]
    rows, bad = sum(survey.rows for survey in surveys), sum((survey.bad for survey in surveys), Counter[str]())
    if not rows:
        raise ConfigError("mine.data.paths", "the files contain no rows", "give files that contain pairs")
    log.info("surveyed", extra={"fields": {"rows": rows, "bad": dict(bad), "slices": len(surveys)}})
    _check_overflow(plan, rows, bad)
    return surveys


def _check_overflow(plan: MinePlan, rows: int, bad: Counter[str]) -> None:
    """Compare the bad rows with the limit; a good row may lack negatives, so those rows do not count."""
    counted = Counter({reason: number for reason, number in bad.items() if reason != "too_few_negatives"})
    check_bad_rows(rows, counted, limit=plan.settings.data.max_bad_fraction, section="mine")


def _read_teacher(plan: MinePlan, deployment: Deployment) -> TeacherScores | None:
    if plan.settings.teacher is None or plan.model is not None:
        return None
    items = [(piece, plan.settings.teacher, plan.output.options) for piece in plan.teacher]
    with Workers(deployment.ray) as workers:
        parts = [
            scores for _, scores in workers.run(read_scores, items, size=sum(piece.size for piece in plan.teacher))
        ]
    teacher = TeacherScores.of(parts)
    log.info("teacher read", extra={"fields": {"scores": len(teacher.keys)}})
    return teacher


def _mine(plan: MinePlan, surveys: Sequence[Survey], teacher: TeacherScores | None, actors: int) -> Mapping[str, Any]:
    from lsr_prod.negatives.job import mine_slices

    reports = finished_reports(plan.output, len(plan.slices), read_report)
    finished = list(reports)
    todo = [number for number in range(len(plan.slices)) if number not in reports]
    actors, began = min(actors, len(todo)), time.monotonic()
    if todo:
        known = KnownPositives.of(surveys)
        progress = Progress(sum(surveys[number].rows for number in todo), unit="queries")
        log.info("mining", extra={"fields": {"slices": len(todo), "reused": len(finished), "actors": actors}})
        for number, report in mine_slices(plan, todo, known, teacher, actors):
            reports[number] = report
            progress.add(report, report.rows)
    seconds = time.monotonic() - began
    counts = _count(plan, surveys, reports)
    manifest = {"plan": plan.digest, "index_version": plan.version, "counts": counts}
    seal(plan.output, manifest, [reports[number].mined for number in range(len(plan.slices))])
    queries = sum(reports[number].rows for number in todo)
    return _summary(plan, counts, reused=len(finished), seconds=seconds, actors=actors, queries=queries)


def _count(plan: MinePlan, surveys: Sequence[Survey], reports: Mapping[int, PartReport]) -> dict[str, Any]:
    """Add up the reports of all parts, and compare the rows of each with the survey of its slice."""
    check_lost_rows(plan.output, [survey.rows for survey in surveys], reports)
    quarantined = sum((report.quarantined for report in reports.values()), Counter[str]())
    dropped = sum((report.dropped for report in reports.values()), Counter[str]())
    rows = sum(report.rows for report in reports.values())
    _check_overflow(plan, rows, quarantined)
    return {
        "rows": rows,
        "mined": sum(report.mined for report in reports.values()),
        "negatives": sum(report.negatives for report in reports.values()),
        "quarantined": dict(sorted(quarantined.items())),
        "dropped": {rule: dropped[rule] for rule in RULES},
    }


def _summary(
    plan: MinePlan, counts: Mapping[str, Any], *, reused: int, seconds: float, actors: int, queries: int = 0
) -> Mapping[str, Any]:
    return {
        "rows": counts["rows"],
        "mined": counts["mined"],
        "negatives": counts["negatives"],
        "quarantined": sum(counts["quarantined"].values()),
        **{f"quarantined.{reason}": number for reason, number in counts["quarantined"].items()},
        **{f"dropped.{rule}": number for rule, number in counts["dropped"].items()},
        "parts": len(plan.slices),
        "parts_reused": reused,
        "actors": actors,
        "threads_per_actor": plan.settings.threads_per_actor,
        "seconds": seconds,
        "queries_per_s": queries / seconds if seconds else 0.0,
        "index_version": plan.version,
        "documents": plan.documents,
        "plan": plan.digest,
        "output": plan.output.uri,
        "quarantine": f"{plan.output.uri.rstrip('/')}/{QUARANTINE}",
    }


def pool_size(settings: MineSettings) -> int:
    """Return the number of actors: one per ``threads_per_actor`` cores of the cluster, at most ``actors``."""
    gpu = settings.teacher is not None and settings.teacher.use_gpu
    return row_pool_size("mine", threads=settings.threads_per_actor, most=settings.actors, gpu=gpu)


def mine_slices(
    plan: MinePlan, todo: Sequence[int], known: KnownPositives, teacher: TeacherScores | None, actors: int
) -> Iterator[tuple[int, PartReport]]:
    """Yield (slice number, report) of the slices in ``todo``, in the order in which they finish."""
    shared = [ray.put(known), ray.put(teacher)]  # references in a list: the actors of a machine share one copy
    actor: Any = ray.remote(_MineActor).options(
        num_cpus=plan.settings.threads_per_actor,
        num_gpus=int(plan.settings.teacher is not None and plan.settings.teacher.use_gpu),
        max_restarts=RESTARTS,
        max_task_retries=RESTARTS,
    )
    miners = [
        actor.remote(plan.settings, plan.output, plan.version, plan.digest, plan.model, shared)
        for _ in range(min(actors, len(todo)))
    ]
    yield from run_slices(
        miners,
        todo,
        lambda miner, number: miner.mine.remote(number, plan.slices[number]),
        task="mining negatives",
    )


class _MineActor:
    """Actor that opens the index with its first slice, then mines one slice at a time."""

    def __init__(
        self,
        settings: MineSettings,
        output: Store,
        version: str,
        plan: str,
        model: PinnedModel | None,
        shared: list[Any],
    ) -> None:
        self._settings, self._version, self._shared = settings, version, shared
        self._output, self._plan, self._model = output, plan, model
        self._miner: Miner | None = None  # an error of its constructor would end the actor

    def mine(self, number: int, piece: Slice) -> PartReport:
        if self._miner is None:
            index = MinedIndex(self._settings, self._output.options, version=self._version)
            known, scores = ray.get(self._shared)
            self._miner = Miner(index, self._settings, known, self._teacher() or scores)
        return mine_slice(number, piece, self._miner, self._output, self._plan)

    def _teacher(self) -> TeacherModel | None:
        teacher = self._settings.teacher
        if self._model is None or teacher is None or teacher.model is None:
            return None
        torch.set_num_threads(self._settings.threads_per_actor)
        scorer = open_teacher(
            self._model.open(),
            teacher.model,
            batch_tokens=teacher.batch_tokens,
            field="mine.teacher.model",
            device="cuda" if teacher.use_gpu else "cpu",
            threads=self._settings.threads_per_actor,
        )
        return TeacherModel(scorer)
