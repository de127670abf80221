"""Mining job: validate all inputs, survey the pairs, mine the unfinished slices (``data.row_jobs``)."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import ray

from lsr_prod import errors, logs
from lsr_prod.cluster.workers import Workers
from lsr_prod.config import Deployment, MineSettings
from lsr_prod.corpus.pinned_file import Slice
from lsr_prod.storage import Store
from lsr_prod.training.data import row_jobs, row_parts
from lsr_prod.training.negatives import inputs, mine, rules

if TYPE_CHECKING:
    from lsr_prod.training.scoring.teacher import PinnedModel

log = logs.get_log(__name__)

_OF_MODELS = ("model", "batch_tokens", "use_gpu")  # settings of teachers that are models


def mine_negatives(deployment: Deployment) -> Mapping[str, Any]:
    """Mine hard negatives for the pairs of ``mine.data`` with the index of ``mine.index``; see ``RowJob.run``."""
    return make_job(deployment).run(deployment)


def make_job(deployment: Deployment) -> row_jobs.RowJob:
    """Validate every setting and input; nothing is written."""
    settings, options = deployment.mine, deployment.storage.options
    assert settings is not None
    slices = inputs.cut_pairs(settings, options)
    teacher = inputs.cut_scores(settings.teacher, options) if settings.teacher and settings.teacher.paths else []
    index = mine.MinedIndex(settings, options)
    index.warm()
    model = _pin_model(settings, options)
    return mining_job(settings, options, slices, teacher, model, version=index.version, documents=index.documents)


def mining_job(
    settings: MineSettings,
    options: dict[str, str],
    slices: Sequence[Slice],
    teacher: Sequence[Slice],
    model: "PinnedModel | None",
    *,
    version: str,
    documents: int,
) -> row_jobs.RowJob:
    """Return the job for slices of the pairs, slices of the teacher's files or its model, and an index version."""
    of_teacher = {"paths": True, "model": {"model"}} if model else dict.fromkeys(("paths", *_OF_MODELS), True)
    left_out = {"index": True, "cache": True, "max_suspicious": True, "teacher": of_teacher}
    plan = {
        "settings": row_jobs.decisive_settings(settings, left_out),
        "index_version": version,
        "slices": row_jobs.identities(slices),
        "teacher": row_jobs.identities(teacher),
        **({"teacher_model": model.digest} if model else {}),
    }

    def opened(surveys: Sequence[inputs.PairSurvey], deployment: Deployment) -> Callable[[], mine.Miner]:
        scores = _read_scores(settings, teacher, deployment) if teacher else None
        # References in a list: the actors of a machine share one copy.
        shared = [ray.put(inputs.KnownPositives.of(surveys)), ray.put(scores)]
        return partial(_open_miner, settings, options, version, model, shared)

    return row_jobs.RowJob(
        kind=_MINING,
        settings=settings,
        output=Store(settings.output, options),
        slices=slices,
        plan=plan,
        opened=opened,
        pins={"index_version": version},
        facts={"index_version": version, "documents": documents},
        use_gpu=settings.teacher is not None and settings.teacher.use_gpu,
        others=teacher,
    )


def _measures(counts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the number of negatives and of suspicious ones, and the share of the hits that were own positives."""
    hits = counts["negatives"] + sum(counts["dropped"].values())
    own = sum(counts["dropped"][rule] for rule in rules.OWN_POSITIVES)
    return {**{name: counts[name] for name in mine.MINED.counts}, "own_positive_share": own / hits if hits else 0.0}


def _check_suspicious(settings: MineSettings, report: row_parts.PartReport, rows: int) -> None:
    """Refuse suspicious negatives once the missing parts of ``rows`` rows cannot lower their share enough."""
    negatives, suspicious = report.counts["negatives"], report.counts["suspicious"]
    if suspicious > settings.max_suspicious * (negatives + (rows - report.rows) * settings.negatives):
        raise errors.TrainingError(
            f"{suspicious} of {negatives} mined negatives have nearly the same words as the positive of their row, "
            f"mine.max_suspicious is {settings.max_suspicious:g}; the index may hold the positives in another form: "
            "name the column of their ids in mine.positive_id, lower mine.own_share, or raise the limit"
        )


_MINING = row_jobs.RowJobKind(
    section="mine",
    inputs="another index version",
    doing="mining negatives",
    format=mine.MINED,
    unit="queries",
    work=lambda report: report.rows,
    survey=inputs.survey_slice,
    make=mine.mine_slice,
    measures=_measures,
    check=_check_suspicious,
    gpu_setting="mine.teacher.use_gpu",
    tolerated=frozenset({"too_few_negatives"}),  # the row is good
)


def _pin_model(settings: MineSettings, options: dict[str, str]) -> "PinnedModel | None":
    """Pin the model of the teacher, and open it once to validate its settings."""
    if settings.teacher is None or settings.teacher.model is None:
        return None
    from lsr_prod.training.scoring.teacher import PinnedModel, validate_teacher  # imports torch

    pinned = PinnedModel.of(settings.teacher.model.model, options, field="mine.teacher.model.model")
    validate_teacher(pinned.open(), settings.teacher.model, field="mine.teacher.model")
    return pinned


def _read_scores(settings: MineSettings, slices: Sequence[Slice], deployment: Deployment) -> inputs.TeacherScores:
    items = [(piece, settings.teacher, deployment.storage.options) for piece in slices]
    with Workers(deployment.ray) as workers:
        found = workers.run(inputs.read_scores, items, size=sum(piece.size for piece in slices))
        teacher = inputs.TeacherScores.of(scores for _, scores in found)
    log.info("teacher read", extra={"fields": {"scores": len(teacher.keys)}})
    return teacher


def _open_miner(
    settings: MineSettings, options: dict[str, str], version: str, model: "PinnedModel | None", shared: list[Any]
) -> mine.Miner:
    index = mine.MinedIndex(settings, options, version=version)
    known, scores = ray.get(shared)
    teacher = settings.teacher
    if model is None or teacher is None or teacher.model is None:
        return mine.Miner(index, settings, known, scores)
    from lsr_prod.training.scoring.teacher import open_teacher  # imports torch

    scorer = open_teacher(
        model.open(), teacher.model, batch_tokens=teacher.batch_tokens, field="mine.teacher.model",
        use_gpu=teacher.use_gpu, threads=settings.threads_per_actor,
    )  # fmt: skip
    return mine.Miner(index, settings, known, mine.TeacherModel(scorer))
