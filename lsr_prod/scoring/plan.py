"""Plan of a scoring run, fixed before it starts: equal plans produce equal parts."""

from dataclasses import dataclass
from typing import Any

from lsr_prod.config import Deployment, ScoreSettings
from lsr_prod.corpus.slices import Slice
from lsr_prod.errors import ConfigError
from lsr_prod.formats.digest import digest_json
from lsr_prod.scoring.pinned_model import PinnedModel
from lsr_prod.scoring.teacher import validate_teacher
from lsr_prod.storage import Store
from lsr_prod.training_data.records import cut_data, pin_files
from lsr_prod.training_data.row_jobs.output import RowOutput
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
