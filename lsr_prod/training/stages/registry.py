"""The stages that a chain is made of: what each needs, what names it, and what runs it.

Every kind of stage is one more case in ``check_stage`` and in ``run_stage``.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypedDict

from pydantic.main import IncEx

from lsr_prod.config import FinetuneSettings, StageSettings, TrainSettings
from lsr_prod.config.encoder import AdaptEncoderSettings
from lsr_prod.config.language import LanguageSettings
from lsr_prod.config.vocabulary import (
    CalibrateSettings,
    ExpandVocabularySettings,
    RescaleHeadSettings,
    TransferVocabularySettings,
)
from lsr_prod.errors import ConfigError
from lsr_prod.evaluation.validation import read_collection
from lsr_prod.formats.digest import digest_json
from lsr_prod.model import SparseEncoder
from lsr_prod.storage import Store
from lsr_prod.storage.folders import fetch_folder
from lsr_prod.training.facts import TRANSFER_FILE, ModelFacts, check_length
from lsr_prod.training.lora import check_lora
from lsr_prod.training.stages import calibrate as calibrate_stage
from lsr_prod.training.stages import expand_vocabulary as expand_stage
from lsr_prod.training.stages import rescale_head as rescale_stage
from lsr_prod.training.stages import set_encoder as encoder_stage
from lsr_prod.training.stages import transfer_vocabulary as transfer_stage
from lsr_prod.training.stages.language_check import check_language
from lsr_prod.training.trainer import check_batch
from lsr_prod.training.watch import check_watch
from lsr_prod.training_data.pins import pin_data, pin_validation

__all__ = ["check_stage", "identity", "named_by", "run_stage", "stage_digest"]

_FORMAT = 1  # raise it when the same settings train other weights
# These decide what is reported, when it is saved and when it fails, never the weights; what is read is pinned apart.
_PLACE = {"paths", "format", "version", "max_bad_fraction"}
_IN_NO_DIGEST: dict[str, IncEx | bool] = {
    "watch": True,
    "checkpoint_every": True,
    "data": _PLACE,
    "unigrams": _PLACE,
    "train_tokenizer": {"data": _PLACE},
    "validation": {"corpus", "queries", "qrels"},
    "idf_corpus": _PLACE,
    "reference": True,
    "target": True,
    "target_embeddings": True,
    "teacher": True,
}


def check_stage(
    stage: StageSettings, train: TrainSettings, facts: ModelFacts, options: dict[str, str]
) -> tuple[dict[str, str], ModelFacts]:
    """Check everything about a stage that can be known before it runs; nothing is written.

    Args:
        stage: its settings.
        train: the section ``train``.
        facts: what the model is when the stage begins.
        options: options of the object store.

    Returns:
        What it reads, name -> digest, and what the model is when the stage has ended.

    Raises:
        ConfigError: a setting is wrong.
        SourceError: the validation's collection is broken.
        MissingExtraError: a package that it asks for is not installed.
    """
    match stage:
        case FinetuneSettings():
            return _check_finetune(stage, train, facts, options)
        case LanguageSettings():
            return check_language(stage, train.workers, facts, options)
        case TransferVocabularySettings():
            return transfer_stage.check(stage, facts, options)
        case ExpandVocabularySettings():
            return expand_stage.check(stage, facts, options)
        case CalibrateSettings():
            return calibrate_stage.check(stage, facts, options)
        case RescaleHeadSettings():
            return rescale_stage.check(stage, facts, options)
        case AdaptEncoderSettings():
            return encoder_stage.check(stage, facts, options)


@contextmanager
def named_by(number: int) -> Iterator[None]:
    """Errors about settings get the number of their stage: ``data.paths`` becomes ``train.stages.0.data.paths``."""
    try:
        yield
    except ConfigError as error:
        inner = error.field.removeprefix("train.stages.")
        whole = error.field.startswith("train.") and inner == error.field
        raise ConfigError(
            error.field if whole else f"train.stages.{number}.{inner}", error.problem, error.remedy
        ) from error


def identity(stage: StageSettings) -> dict[str, Any]:
    """The settings that decide the model; no path and no secret among them."""
    more: dict[str, IncEx | bool] = {"validation": True} if isinstance(stage, LanguageSettings) else {}
    settings = stage.model_dump(mode="json", exclude={**_IN_NO_DIGEST, **more})
    # Stages that do not ask for it keep the names that they had before it could be asked for.
    return {name: value for name, value in settings.items() if name != "idf_corpus" or value is not None}


def stage_digest(stage: StageSettings, pins: Mapping[str, str], parent: str) -> str:
    """The name (sha256, hex) of a stage's work: two stages with one name make the same model.

    Args:
        stage: its settings, the seed among them.
        pins: what it reads, as ``check_stage`` returned it.
        parent: digest of the model that it starts from.
    """
    return digest_json({"format": _FORMAT, "parent": parent, "pins": dict(pins), "stage": identity(stage)})


def run_stage(
    stage: StageSettings, train: TrainSettings, *, start: str, name: str, output: Path, options: dict[str, str]
) -> Mapping[str, Any]:
    """Run a stage, or go on with it where it was killed. Needs a Ray session.

    Args:
        stage: its settings.
        train: the section ``train``.
        start: digest of the model in the work store that it starts from.
        name: the stage's digest, under which it keeps its checkpoints.
        output: folder for the model directory.
        options: options of the object store.

    Returns:
        A flat summary.
    """
    where: _Where = {"start": start, "output": output, "options": options}
    match stage:
        case FinetuneSettings():
            from lsr_prod.training.stages.finetune import finetune

            summary = finetune(stage, train, name=name, **where)
        case LanguageSettings():
            from lsr_prod.training.stages.language import train_language

            summary = train_language(stage, train, name=name, **where)
        case TransferVocabularySettings():
            summary = _run_once(partial(transfer_stage.run, stage=stage), train, **where)
        case ExpandVocabularySettings():
            summary = _run_once(partial(expand_stage.run, stage=stage), train, **where)
        case CalibrateSettings():
            summary = _run_once(partial(calibrate_stage.run, stage=stage), train, **where)
        case RescaleHeadSettings():
            summary = _run_once(partial(rescale_stage.run, stage=stage), train, **where)
        case AdaptEncoderSettings():
            summary = _run_once(partial(encoder_stage.run, stage=stage), train, **where)
    record = fetch_folder(Store(train.work, options), f"models/{start}", verify=False) / TRANSFER_FILE
    if record.is_file() and not (output / TRANSFER_FILE).exists():
        shutil.copyfile(record, output / TRANSFER_FILE)  # stages later in the chain read it
    return summary


class _Where(TypedDict):
    """Arguments that every kind of stage is run with."""

    start: str
    output: Path
    options: dict[str, str]


def _run_once(
    run: Callable[..., tuple[SparseEncoder, dict[str, Any]]],
    train: TrainSettings,
    *,
    start: str,
    output: Path,
    options: dict[str, str],
) -> dict[str, Any]:
    """Run a stage that trains nothing, and save what it made, with the record of a transfer if it left one."""
    encoder = SparseEncoder.load(fetch_folder(Store(train.work, options), f"models/{start}"))
    with tempfile.TemporaryDirectory() as scratch:
        made, summary = run(encoder, options=options, scratch=Path(scratch))
        made.save(output)
        if (record := Path(scratch) / TRANSFER_FILE).is_file():
            shutil.copyfile(record, output / TRANSFER_FILE)
    return summary


def _check_finetune(
    stage: FinetuneSettings, train: TrainSettings, facts: ModelFacts, options: dict[str, str]
) -> tuple[dict[str, str], ModelFacts]:
    check_watch(stage.watch)
    for workers in range(train.min_workers or train.workers, train.workers + 1):
        check_batch(stage, stage.batch.queries, workers)
    check_length("query_max_length", stage.query_max_length, facts)
    check_length("document_max_length", stage.document_max_length, facts)
    if stage.scale.lora is not None:
        check_lora(stage.scale.lora, facts.linear_modules, facts.architecture)
    _check_queries(stage, facts)
    pins = {"data": pin_data(stage.data, options)}
    if stage.idf_corpus is not None:
        with _within("idf_corpus"):
            pins["idf_corpus"] = pin_data(stage.idf_corpus, options)
    if stage.validation is not None:
        read_collection(stage.validation)
        pins["validation"] = pin_validation(stage.validation)
    return pins, replace(
        facts,
        query_max_length=stage.query_max_length or facts.query_max_length,
        document_max_length=stage.document_max_length or facts.document_max_length,
    )


def _check_queries(stage: FinetuneSettings, facts: ModelFacts) -> None:
    """Refuse what queries without a model cannot be asked for.

    Raises:
        ConfigError: a regulariser of queries, which nothing trains; or a corpus for IDF that nothing needs.
    """
    if facts.query_encoder == "model":
        if stage.idf_corpus is not None:
            raise ConfigError(
                "idf_corpus",
                "the model encodes queries, no frequencies weigh them",
                "leave it out, or set query_encoder to idf",
            )
        return
    for number, penalty in enumerate(stage.objective.sparsity.regularizers):
        if penalty.query:
            raise ConfigError(
                f"objective.sparsity.regularizers.{number}.query",
                "queries weighed by IDF are not trained",
                "leave it out",
            )


@contextmanager
def _within(section: str) -> Iterator[None]:
    """Errors about ``data`` of another section get its name."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{section}.{error.field.removeprefix('data.')}", error.problem, error.remedy) from error
