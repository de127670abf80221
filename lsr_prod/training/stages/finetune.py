"""Stage ``finetune``: train an encoder for retrieval on Ray Train."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from lsr_prod.config import FinetuneSettings, TrainSettings
from lsr_prod.errors import ConfigError
from lsr_prod.evaluation.validation import read_collection
from lsr_prod.storage.artifacts import fetch_artifact
from lsr_prod.training.encoder_setup.lora import check_lora
from lsr_prod.training.encoder_setup.prepare import prepare_encoder
from lsr_prod.training.loop.job import LoopInputs, load_start
from lsr_prod.training.loop.ray_train import run_loop
from lsr_prod.training.observers.trackers import check_watch
from lsr_prod.training.query_weights import count_terms, needs_term_counts
from lsr_prod.training.retrieval.steps import check_batch
from lsr_prod.training.stages.facts import ModelFacts, check_length
from lsr_prod.training.stages.stage import StageRun
from lsr_prod.training_data.layouts import QueryTermLayout
from lsr_prod.training_data.pins import pin_data, pin_validation
from lsr_prod.training_data.prepare import prepare_training_set

__all__ = ["check", "run"]


def check(
    stage: FinetuneSettings, train: TrainSettings, facts: ModelFacts, options: dict[str, str]
) -> tuple[dict[str, str], ModelFacts]:
    """Check the stage; nothing is written.

    Returns:
        The digest of each input by name, and the facts of the model after the stage.

    Raises:
        ConfigError: a setting is wrong, or does not fit the model.
        SourceError: the validation's collection is broken.
        MissingExtraError: a package that the settings need is not installed.
    """
    check_watch(stage.watch)
    for workers in range(train.min_workers or train.workers, train.workers + 1):
        check_batch(stage, stage.batch.queries, workers)
    check_length("query_max_length", stage.query_max_length, facts)
    check_length("document_max_length", stage.document_max_length, facts)
    if stage.scale.lora is not None and facts.head == "token_weights":
        raise ConfigError(
            "scale.lora", "the model has a head of token weights, whose layer LoRA would not train", "leave it out"
        )
    if stage.scale.lora is not None:
        check_lora(stage.scale.lora, facts.linear_modules, facts.architecture)
    _check_query_encoder(stage, facts)
    pins = {"data": pin_data(stage.data, options)}
    if stage.idf_corpus is not None:
        with _errors_of_idf_corpus():
            pins["idf_corpus"] = pin_data(stage.idf_corpus, options)
    if stage.validation is not None:
        read_collection(stage.validation, options)
        pins["validation"] = pin_validation(stage.validation, options)
    return pins, replace(
        facts,
        query_max_length=stage.query_max_length or facts.query_max_length,
        document_max_length=stage.document_max_length or facts.document_max_length,
    )


def run(stage: FinetuneSettings, job: StageRun) -> Mapping[str, Any]:
    """Train the model. Needs a Ray session.

    Returns:
        A flat summary: training_set (digest), steps, rows, quarantined rows, the last loss, the best validation.

    Raises:
        ConfigError: a setting does not fit the model or the data; nothing was trained.
        TrainingCollapsedError: vectors became empty or full, or the loss is not a number.
        WorkersLostError: workers died more often than ``train.max_failures``.
    """
    check_watch(stage.watch)
    work = job.work
    folder = fetch_artifact(work, f"models/{job.start}")
    encoder = load_start(folder, stage)
    data = prepare_training_set(
        stage.data,
        model=folder,
        query_max_length=encoder.card.query_max_length,
        document_max_length=encoder.card.document_max_length,
        store=work,
        options=job.options,
        negatives=stage.batch.negatives,
        layout=QueryTermLayout(encoder.card, tuple(encoder.vocabulary)) if encoder.card.inference_free else None,
    )
    check_batch(stage, data.rows, job.train.workers)
    prepare_encoder(encoder, stage)  # reports what the model does not support here, once, instead of on every worker
    corpus = stage.idf_corpus or stage.data
    counted = needs_term_counts(encoder, stage.query_weights)
    counts = count_terms(corpus, encoder, work, job.options) if counted else None
    inputs = LoopInputs(data.digest, term_counts=counts)
    summary = run_loop(stage, job.train, inputs, work=work, start=job.start, name=job.name, output=job.output)
    return {"training_set": data.digest, "rows": data.rows, "quarantined": sum(data.quarantined.values()), **summary}


def _check_query_encoder(stage: FinetuneSettings, facts: ModelFacts) -> None:
    """Refuse settings that have no effect on how the model encodes queries.

    Raises:
        ConfigError: a regularizer of queries weighted by IDF, which are not trained; or an unused corpus for IDF, or
            unused settings of learned weights.
    """
    learned = facts.query_encoder == "learned"
    if stage.query_weights is not None and not learned:
        raise ConfigError(
            "query_weights",
            f"the model has query_encoder {facts.query_encoder}, so no query weights are trained",
            "leave it out, or set query_encoder to learned",
        )
    if facts.query_encoder == "model":
        if stage.idf_corpus is not None:
            raise ConfigError(
                "idf_corpus",
                "the model encodes queries itself, so no IDF weights are computed",
                "leave it out, or set query_encoder to idf",
            )
        return
    if learned:
        if stage.idf_corpus is not None and stage.query_weights and stage.query_weights.initialization != "idf":
            raise ConfigError(
                "idf_corpus",
                f"query weights start from {stage.query_weights.initialization}, so no IDF weights are computed",
                "leave it out, or set query_weights.initialization to idf",
            )
        return
    for number, regularizer in enumerate(stage.objective.sparsity.regularizers):
        if regularizer.query:
            raise ConfigError(
                f"objective.sparsity.regularizers.{number}.query",
                "queries weighted by IDF are not trained",
                "leave it out",
            )


@contextmanager
def _errors_of_idf_corpus() -> Iterator[None]:
    """Rename the field ``data`` of errors to ``idf_corpus``."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"idf_corpus.{error.field.removeprefix('data.')}", error.problem, error.remedy) from error
