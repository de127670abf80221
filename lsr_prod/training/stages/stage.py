"""Types that all stages share, and the runner of stages that train nothing."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pydantic.main import IncEx

from lsr_prod.config import TrainSettings
from lsr_prod.errors import ConfigError
from lsr_prod.model import SparseEncoder
from lsr_prod.storage.artifacts import fetch_artifact
from lsr_prod.storage.disk import scratch_folder
from lsr_prod.storage.drafts import write_file
from lsr_prod.training.encoder_setup.flash import check_flash
from lsr_prod.training.encoder_setup.lora import check_lora
from lsr_prod.training.loop.job import StageRun
from lsr_prod.training.observers.trackers import check_watch
from lsr_prod.training.stages.facts import TRANSFER_FILE, ModelFacts
from lsr_prod.training.steps import LoopSettings

Excluded: TypeAlias = dict[str, IncEx | bool]
"""Settings, or parts of settings, that a digest leaves out; in the notation of ``model_dump(exclude=...)``."""


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


def check_loop(stage: LoopSettings, facts: ModelFacts) -> None:
    """Check the settings that all stages with a training loop have."""
    check_watch(stage.watch)
    if stage.scale.lora is not None:
        if facts.head == "token_weights":
            problem = "the model has a head of token weights, whose layer LoRA would not train"
            raise ConfigError("scale.lora", problem, "leave it out")
        check_lora(stage.scale.lora, facts.linear_modules, facts.architecture)
    if stage.scale.attention == "flash":
        check_flash(facts.architecture)


@contextmanager
def errors_of(field: str) -> Iterator[None]:
    """Rename the field ``data`` of errors to another field."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{field}.{error.field.removeprefix('data.')}", error.problem, error.remedy) from error
