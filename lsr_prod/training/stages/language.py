"""Checks and steps that the stages on plain text share: language modeling and distillation of a teacher's vectors."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lsr_prod.config.language import LanguageSettings, PretrainEmlmSettings
from lsr_prod.config.train import TrainSettings
from lsr_prod.config.training_data import TrainingDataSettings
from lsr_prod.errors import ConfigError
from lsr_prod.inference.terms.words import refuse_tokens
from lsr_prod.model import SparseEncoder
from lsr_prod.storage.artifacts import fetch_artifact
from lsr_prod.training.data.layouts import Layout, PackedLayout, WordLayout
from lsr_prod.training.data.prepare import TrainingSetSummary, prepare_training_set
from lsr_prod.training.data.schemas import pin_data
from lsr_prod.training.encoder_setup import prepare_encoder
from lsr_prod.training.loop.job import LoopInputs, StageRun
from lsr_prod.training.loop.ray_train import run_loop
from lsr_prod.training.observers.reports import check_watch
from lsr_prod.training.stages.facts import ModelFacts, check_length
from lsr_prod.training.stages.finetune import check_loop, errors_of
from lsr_prod.training.steps import check_batch


@dataclass(frozen=True, slots=True)
class StartModel:
    """The model that a stage starts from."""

    folder: Path  # its model directory
    encoder: SparseEncoder  # the loaded encoder


def check_language(
    stage: LanguageSettings, train: TrainSettings, facts: ModelFacts, options: dict[str, str]
) -> dict[str, str]:
    """Check the settings that all stages on plain text have; nothing is written."""
    check_loop(stage, facts)
    check_batch(stage, stage.batch.texts, train.workers or train.min_workers or 1)
    check_length("max_length", stage.max_length, facts)
    if stage.trained == "head" and facts.tied:
        raise ConfigError(
            "trained",
            "the output matrix is tied to the token embeddings, so the head cannot be trained alone",
            "give embeddings or all, or replace the output vocabulary in an earlier stage",
        )
    if stage.validation is not None:
        with errors_of("validation.data"):
            pin_data(stage.validation.data, options)  # it must exist; it has no influence on the weights
    return {"data": pin_data(stage.data, options)}


def check_masked(kind: str, facts: ModelFacts) -> None:
    """Refuse a model that cannot predict masked tokens."""
    if facts.kind != "masked" or "mask" not in facts.roles:
        problem = "a causal model" if facts.kind == "causal" else "a model whose tokenizer has no mask token"
        raise ConfigError(
            "stage", f"{kind} predicts masked tokens, and {facts.architecture} is {problem}", "take adapt_causal"
        )


def load_start_model(job: StageRun) -> StartModel:
    """Fetch and load the model that the stage starts from."""
    folder = fetch_artifact(job.work, f"models/{job.start}")
    return StartModel(folder, SparseEncoder.load(folder))


def text_length(stage: LanguageSettings, encoder: SparseEncoder) -> int:
    """Return the number of tokens after which texts are cut, or of a packed block."""
    return stage.max_length or encoder.card.document_max_length


def train_language(
    stage: LanguageSettings,
    job: StageRun,
    model: StartModel,
    layout: Layout | None = None,
    *,
    new_tokens: tuple[int, ...] = (),
    teacher: str | None = None,
) -> Mapping[str, Any]:
    """Prepare the texts and train the model. Needs a Ray session.

    Returns:
        A flat summary: training_set (digest), steps, rows (texts or packed blocks), quarantined rows, the last loss,
        the last validation.
    """
    check_watch(stage.watch)
    data = _prepare(stage, stage.data, job, model, layout)
    check_batch(stage, data.rows, job.train.workers or 1)
    inputs = LoopInputs(
        data.digest, validation_set=_validation_set(stage, job, model, layout), new_tokens=new_tokens, teacher=teacher
    )
    prepare_encoder(model.encoder, stage)  # reports what the model does not support here, not on every worker
    summary = run_loop(stage, job, inputs)
    quarantined = sum(data.quarantined.values())
    return {"training_set": data.digest, "rows": data.rows, "quarantined": quarantined, **summary}


def _prepare(
    stage: LanguageSettings, data: TrainingDataSettings, job: StageRun, model: StartModel, layout: Layout | None
) -> TrainingSetSummary:
    length = None if isinstance(layout, PackedLayout) else text_length(stage, model.encoder)
    return prepare_training_set(
        data,
        model=model.folder,
        query_max_length=length,
        document_max_length=length,
        store=job.work,
        options=job.options,
        layout=layout,
    )


def _validation_set(stage: LanguageSettings, job: StageRun, model: StartModel, layout: Layout | None) -> str | None:
    if stage.validation is None:
        return None
    with errors_of("validation.data"):
        return _prepare(stage, stage.validation.data, job, model, layout).digest


def check(
    stage: PretrainEmlmSettings, train: TrainSettings, facts: ModelFacts, options: dict[str, str]
) -> tuple[dict[str, str], ModelFacts]:
    """Check the stage; nothing is written."""
    pins = check_language(stage, train, facts, options)
    check_masked(stage.stage, facts)
    if facts.output_vocabulary != "words":
        raise ConfigError(
            "stage",
            "pretrain_emlm predicts words, and the model's output terms are tokens",
            "put expand_vocabulary before this stage, or take adapt_mlm",
        )
    if facts.token_head:
        refuse_tokens("stage")
    return pins, facts


def run(stage: PretrainEmlmSettings, job: StageRun) -> Mapping[str, Any]:
    """Train the model; see ``train_language``."""
    model = load_start_model(job)
    return train_language(stage, job, model, WordLayout(tuple(model.encoder.vocabulary)))
