"""Plan of a mining run, fixed before it starts: equal plans produce equal parts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lsr_prod.config import Deployment, MineSettings
from lsr_prod.corpus.slices import Slice
from lsr_prod.formats.digest import digest_json
from lsr_prod.negatives.index import MinedIndex
from lsr_prod.negatives.pairs import cut_pairs
from lsr_prod.negatives.teacher import cut_scores
from lsr_prod.scoring.pinned_model import PinnedModel
from lsr_prod.scoring.teacher import validate_teacher
from lsr_prod.storage import Store
from lsr_prod.training_data.row_jobs.output import RowOutput

# Settings that decide where and how fast the job runs, and do not change any row.
_ELSEWHERE = {"index", "output", "cache", "actors", "threads_per_actor", "slice_kilobytes"}
_ELSEWHERE_OF_DATA = {"paths", "format", "version", "max_bad_fraction"}
_OF_MODELS = ("model", "batch_tokens", "use_gpu")  # settings of teachers that are models


@dataclass(frozen=True, slots=True)
class MinePlan:
    """Validated plan of a mining run.

    Attributes:
        settings: the section ``mine``.
        output: the output folder.
        slices: slices of the pairs; the position of a slice is the number of its part.
        teacher: slices of the teacher's files; empty without a teacher.
        version: sha256 of the index version that is mined.
        documents: number of documents in that version.
        model: the pinned model of a teacher that is a model.
    """

    settings: MineSettings
    output: Store
    slices: tuple[Slice, ...]
    teacher: tuple[Slice, ...]
    version: str
    documents: int
    model: PinnedModel | None = None

    def to_json(self) -> dict[str, Any]:
        """Return everything that decides the rows; its digest identifies the plan."""
        of_teacher = {"paths": True, "model": {"model"}} if self.model else dict.fromkeys(("paths", *_OF_MODELS), True)
        left_out: Any = {**dict.fromkeys(_ELSEWHERE, True), "data": _ELSEWHERE_OF_DATA, "teacher": of_teacher}
        value = self.settings.model_dump(mode="json", exclude=left_out)
        return {
            "settings": value,
            "index_version": self.version,
            "slices": [_identity(piece) for piece in self.slices],
            "teacher": [_identity(piece) for piece in self.teacher],
            **({"teacher_model": self.model.digest} if self.model else {}),
        }

    @property
    def digest(self) -> str:
        """sha256 of the plan."""
        return digest_json(self.to_json())


def _identity(piece: Slice) -> list[Any]:
    return [piece.file.identity(), piece.start, piece.stop]


def make_plan(deployment: Deployment) -> MinePlan:
    """Validate every setting and input; nothing is written."""
    settings, options = deployment.mine, deployment.storage.options
    assert settings is not None
    slices = cut_pairs(settings, options)
    teacher = cut_scores(settings.teacher, options) if settings.teacher and settings.teacher.paths else []
    index = MinedIndex(settings, options)
    index.warm()
    plan = MinePlan(
        settings,
        Store(settings.output, options),
        tuple(slices),
        tuple(teacher),
        index.version,
        index.documents,
        _pin_model(settings, options),
    )
    check_output(plan)
    return plan


def _pin_model(settings: MineSettings, options: dict[str, str]) -> PinnedModel | None:
    """Pin the model of the teacher, and open it once to validate its settings."""
    if settings.teacher is None or settings.teacher.model is None:
        return None
    pinned = PinnedModel.of(settings.teacher.model.model, options, field="mine.teacher.model.model")
    validate_teacher(pinned.open(), settings.teacher.model, field="mine.teacher.model")
    return pinned


def check_output(plan: MinePlan) -> Mapping[str, Any] | None:
    """Check that the output folder is empty or belongs to the plan; return the manifest if the plan is complete."""
    return _output(plan).manifest()


def save_plan(plan: MinePlan) -> None:
    """Reserve the output folder for a plan."""
    _output(plan).reserve(plan.to_json())


def _output(plan: MinePlan) -> RowOutput:
    return RowOutput(plan.output, plan.digest, "mine.output", "another index version")
