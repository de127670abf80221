"""Mining job: validate all inputs, survey the pairs, mine the unfinished slices, verify counts, write the manifest."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from lsr_prod.cluster import ray_session
from lsr_prod.cluster.nodes import require_shared_folders
from lsr_prod.config import Deployment
from lsr_prod.corpus.on_nodes import require_source_on_nodes
from lsr_prod.errors import ConfigError
from lsr_prod.indexing.workers import Workers
from lsr_prod.logs import get_log
from lsr_prod.negatives.known import KnownPositives, Survey, survey_slice
from lsr_prod.negatives.part import PartReport, read_report
from lsr_prod.negatives.plan import MinePlan, check_output, make_plan, save_plan
from lsr_prod.negatives.rules import RULES
from lsr_prod.negatives.teacher import TeacherScores, read_scores
from lsr_prod.training_data.row_jobs.accounting import (
    Progress,
    check_bad_rows,
    check_lost_rows,
    finished_reports,
    seal,
)
from lsr_prod.training_data.row_jobs.parts import QUARANTINE

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
        from lsr_prod.negatives.pool import pool_size

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
    from lsr_prod.negatives.pool import mine_slices

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
