"""Registry of the stages of a training chain: the functions that check and run each kind, and the digest of a stage.

To add a kind of stage: its settings in ``lsr_prod.config``, functions that check and run it in this package, and a line
in ``REGISTRY``.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pydantic.main import IncEx

from lsr_prod.config import FinetuneSettings, StageSettings, TrainSettings
from lsr_prod.config.language import LanguageSettings
from lsr_prod.errors import ArtifactError, ConfigError
from lsr_prod.model import SparseEncoder
from lsr_prod.storage import artifacts, disk, drafts
from lsr_prod.storage.folders import open_source
from lsr_prod.storage.formats import bundle_format, digests
from lsr_prod.training.loop.worker_job import StageRun
from lsr_prod.training.stage_trainer import batch_rows, check_batch
from lsr_prod.training.stages import finetune, language, transformations, vocabulary
from lsr_prod.training.stages.stage_facts import TRANSFER_FILE, ModelFacts

Excluded: TypeAlias = dict[str, IncEx | bool]
"""Settings, or parts of settings, that a digest leaves out; in the notation of ``model_dump(exclude=...)``."""

_FORMAT = 2  # raise it when the same settings train other weights
# Stages that other heads than vocabulary heads support.
_SUPPORTED: dict[str, tuple[str, ...]] = {"token_weights": ("finetune", "set_encoder"), "autoencoder": ()}
# The content of these folders enters digests, not their place.
_FOLDERS = ("query_model", "reference", "target", "target_embeddings", "teacher")
_LOCATION = {"paths", "format", "version", "max_bad_fraction"}
_DATA: Excluded = {"data": _LOCATION}
_TRAINING: Excluded = {**_DATA, "watch": True, "checkpoint_every": True}
# Settings that digests leave out unless they are set: stages without them keep the digests of older releases.
_OPTIONAL = ("appended_tokens",)
_LANGUAGE: Excluded = {**_TRAINING, "validation": True}
_FINETUNE: Excluded = {
    **_TRAINING,
    "validation": {"corpus", "queries", "qrels"},
    "idf_corpus": _LOCATION,
    "query_model": True,
}
_TRANSFER: Excluded = {
    "target": True,
    "target_embeddings": True,
    "train_tokenizer": {"data": _LOCATION},
    "unigrams": _LOCATION,
}


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


def _transformation(
    check: Callable[[Any, ModelFacts, dict[str, str]], tuple[dict[str, str], ModelFacts]], not_in_digest: Excluded
) -> Stage:
    """Return a stage that changes an encoder in one go, without training loop and checkpoints."""

    def run_once(settings: Any, job: StageRun) -> dict[str, Any]:
        encoder = SparseEncoder.load(artifacts.fetch_artifact(job.work, f"models/{job.start}"))
        with disk.scratch_folder() as scratch:
            changed, summary = TRANSFORMATIONS[settings.stage](encoder, settings, job.options, scratch)
            changed.save(job.output)
            if (record := scratch / TRANSFER_FILE).is_file():
                drafts.write_file(job.output / TRANSFER_FILE, record.read_bytes())
        return summary

    return Stage(lambda settings, _, facts, options: check(settings, facts, options), run_once, not_in_digest)


TRANSFORMATIONS: dict[str, Callable[..., tuple[SparseEncoder, dict[str, Any]]]] = {
    "transfer_vocabulary": vocabulary.transfer_vocabulary,
    "expand_vocabulary": vocabulary.expand_vocabulary,
    "calibrate": transformations.calibrate,
    "rescale_head": transformations.rescale_head,
    "set_encoder": transformations.set_encoder,
}
"""The functions that change an encoder in one go, by the value of the setting ``stage``."""

REGISTRY: dict[str, Stage] = {
    "finetune": Stage(finetune.check, finetune.run, _FINETUNE),
    "adapt_mlm": Stage(language.check, language.run, {**_LANGUAGE, "reference": True}),
    "pretrain_emlm": Stage(language.check, language.run, _LANGUAGE),
    "adapt_causal": Stage(language.check, language.run, _LANGUAGE),
    "distil_head": Stage(language.check, language.run, {**_LANGUAGE, "teacher": True}),
    "transfer_vocabulary": _transformation(vocabulary.check_transfer, _TRANSFER),
    "expand_vocabulary": _transformation(vocabulary.check_expand, _DATA),
    "calibrate": _transformation(transformations.check_calibrate, _DATA),
    "rescale_head": _transformation(transformations.check_rescale_head, _DATA),
    "set_encoder": _transformation(transformations.check_set_encoder, {}),
}
"""The implementation of every kind of stage, by the value of its setting ``stage``."""


def check_stage(
    stage: StageSettings, train: TrainSettings, facts: ModelFacts, options: dict[str, str]
) -> tuple[dict[str, str], ModelFacts]:
    """Check what can be known of a stage before it runs; return the digests of its inputs, and the facts after it."""
    if facts.query_encoder == "separate" and stage.stage != "finetune":
        problem = f"{stage.stage} changes one encoder, but this model has a separate query encoder"
        raise ConfigError("stage", problem, "run it before the finetune stage with query_model")
    if facts.head != "vocabulary" and stage.stage not in _SUPPORTED[facts.head]:
        supported = " and ".join(_SUPPORTED[facts.head])
        problem = f"{stage.stage} needs a vocabulary head, and the model has {bundle_format.HEADS[facts.head]}"
        remedy = f"remove the stage; this model supports {supported}"
        raise ConfigError("stage", problem, remedy if supported else "train it with sentence-transformers")
    return REGISTRY[stage.stage].check(local_inputs(stage, options), train, facts, options)


def accepts_workers(stages: Sequence[StageSettings], workers: int) -> bool:
    """Return whether the batches of all stages can be divided among a number of workers."""
    try:
        for stage in stages:
            if isinstance(stage, FinetuneSettings | LanguageSettings):
                check_batch(stage, batch_rows(stage), workers)
    except ConfigError:
        return False
    return True


def local_inputs(stage: StageSettings, options: dict[str, str]) -> StageSettings:
    """Return the settings with the folders of the node cache in place of the URIs of models and tokenizers."""
    folders: dict[str, str] = {}
    for name in _FOLDERS:
        if (place := getattr(stage, name, None)) is not None:
            try:
                folders[name] = open_source(place, options)
            except ArtifactError as error:
                raise ConfigError(name, str(error), "give a folder or the URI of a stored one") from error
    return stage.model_copy(update=folders) if folders else stage


@contextmanager
def errors_of_stage(number: int) -> Iterator[None]:
    """Add the number of the stage to errors about settings: ``data.paths`` becomes ``train.stages.0.data.paths``."""
    try:
        yield
    except ConfigError as error:
        inner = error.field.removeprefix("train.stages.")
        whole = error.field.startswith("train.") and inner == error.field
        field = error.field if whole else f"train.stages.{number}.{inner}"
        raise ConfigError(field, error.problem, error.remedy) from error


def identity(stage: StageSettings) -> dict[str, Any]:
    """Return the settings that decide the model; they contain no path and no secret."""
    excluded = REGISTRY[stage.stage].not_in_digest
    if isinstance(getattr(stage, "data", None), list):
        excluded = {**excluded, "data": {"__all__": _LOCATION | {"name"}}}
    settings = stage.model_dump(mode="json", exclude=excluded)
    return {name: value for name, value in settings.items() if name not in _OPTIONAL or value is not None}


def stage_digest(stage: StageSettings, pins: Mapping[str, str], parent: str) -> str:
    """Return the digest (sha256, hex) that names a stage's work: stages with the same digest make the same model."""
    return digests.digest_json({"format": _FORMAT, "parent": parent, "pins": dict(pins), "stage": identity(stage)})
