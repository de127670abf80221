"""Types that all stages share, and the runner of stages that train nothing."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from pydantic.main import IncEx

from lsr_prod.config import TrainSettings
from lsr_prod.model import SparseEncoder
from lsr_prod.storage import Store
from lsr_prod.storage.artifacts import fetch_artifact
from lsr_prod.storage.disk import scratch_folder
from lsr_prod.storage.drafts import write_file
from lsr_prod.training.stages.facts import TRANSFER_FILE, ModelFacts

Excluded: TypeAlias = dict[str, IncEx | bool]
"""Settings, or parts of settings, that a digest leaves out; in the notation of ``model_dump(exclude=...)``."""


@dataclass(frozen=True, slots=True)
class StageRun:
    """Model and folders of one run of a stage."""

    train: TrainSettings  # the section ``train``
    start: str  # digest of the model to start from, which lies in the work store as ``models/<start>``
    name: str  # digest of the stage; its checkpoints lie under ``runs/<name>``
    output: Path  # the new model directory
    options: dict[str, str]  # options of the object store

    @property
    def work(self) -> Store:
        """The work store."""
        return Store(self.train.work, self.options)


@dataclass(frozen=True, slots=True)
class Stage:
    """Implementation of one kind of stage."""

    # validates the settings before anything is written; returns the digest of each input by name, and the facts of the
    # model after the stage
    check: Callable[[Any, TrainSettings, ModelFacts, dict[str, str]], tuple[dict[str, str], ModelFacts]]
    # runs the stage, or resumes it; writes the model directory and returns a flat summary. Needs a Ray session
    run: Callable[[Any, StageRun], Mapping[str, Any]]
    # settings that do not enter the stage's digest. They decide what is reported, when the model is saved or when the
    # stage fails, never the weights; or they are paths, whose content ``check`` pins
    not_in_digest: Excluded = field(default_factory=dict)


def transformation(
    check: Callable[[Any, ModelFacts, dict[str, str]], tuple[dict[str, str], ModelFacts]],
    run: Callable[..., tuple[SparseEncoder, dict[str, Any]]],
    not_in_digest: Excluded,
) -> Stage:
    """Return a stage that changes an encoder in one go, without training loop and checkpoints."""

    def run_once(settings: Any, job: StageRun) -> dict[str, Any]:
        encoder = SparseEncoder.load(fetch_artifact(job.work, f"models/{job.start}"))
        with scratch_folder() as scratch:
            changed, summary = run(encoder, settings, options=job.options, scratch=scratch)
            changed.save(job.output)
            if (record := scratch / TRANSFER_FILE).is_file():
                write_file(job.output / TRANSFER_FILE, record.read_bytes())
        return summary

    return Stage(lambda settings, _, facts, options: check(settings, facts, options), run_once, not_in_digest)
