"""Stage ``finetune``: train an encoder for retrieval on Ray Train."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from lsr_prod import errors, logs
from lsr_prod.config import FinetuneSettings, TrainSettings, training
from lsr_prod.evaluation.validation import read_collection
from lsr_prod.storage.artifacts import fetch_artifact
from lsr_prod.storage.formats.bundle_format import QUERY_FOLDER, EncoderCard, Kind
from lsr_prod.training import query_weights, stage_trainer
from lsr_prod.training.data import layouts, prepare, schemas
from lsr_prod.training.encoder_setup import check_flash, check_lora, prepare_encoder
from lsr_prod.training.loop import ray_train, worker_job
from lsr_prod.training.observers.reports import check_watch
from lsr_prod.training.stages.stage_facts import ModelFacts, check_length, check_query_model, with_query_model

log = logs.get_log(__name__)

_KINDS: tuple[Kind, ...] = ("query", "document")


def check_loop(stage: training.LoopSettings, facts: ModelFacts) -> None:
    """Check the settings that all stages with a training loop have."""
    check_watch(stage.watch)
    if stage.scale.lora is not None:
        if facts.head == "token_weights":
            problem = "the model has a head of token weights, whose layer LoRA would not train"
            raise errors.ConfigError("scale.lora", problem, "leave it out")
        check_lora(stage.scale.lora, facts.linear_modules, facts.architecture)
    if stage.scale.attention == "flash":
        check_flash(facts.architecture)


@contextmanager
def errors_of(field: str) -> Iterator[None]:
    """Rename the field ``data`` of errors to another field."""
    try:
        yield
    except errors.ConfigError as error:
        raise errors.ConfigError(f"{field}.{error.field.removeprefix('data.')}", error.problem, error.remedy) from error


def check(
    stage: FinetuneSettings, train: TrainSettings, facts: ModelFacts, options: dict[str, str]
) -> tuple[dict[str, str], ModelFacts]:
    """Check the stage; nothing is written."""
    check_loop(stage, facts)
    most = train.workers or train.min_workers or 1  # a number that is chosen later fits the batch
    for workers in range(train.min_workers or most, most + 1):
        stage_trainer.check_batch(stage, stage.batch.queries, workers)
    for name in ("document_max_length", "card_document_max_length"):
        check_length(name, getattr(stage, name), facts)
    pins, asked = check_query_model(stage, facts, pins=_pin_sets(stage, options))
    for name in ("query_max_length", "card_query_max_length"):
        check_length(name, getattr(stage, name), asked)
    _check_query_encoder(stage, facts)
    if stage.idf_corpus is not None:
        with errors_of("idf_corpus"):
            pins["idf_corpus"] = schemas.pin_data(stage.idf_corpus, options)
    if stage.validation is not None:
        read_collection(stage.validation, options)
        pins["validation"] = schemas.pin_validation(stage.validation, options)
    lengths: dict[str, Any] = {"query_max_length": asked.query_max_length, **worker_job.card_lengths(stage)}
    return pins, replace(facts, query_encoder="separate" if stage.query_model else facts.query_encoder, **lengths)


def run(stage: FinetuneSettings, job: worker_job.StageRun) -> Mapping[str, Any]:
    """Train the model and return a flat summary. Needs a Ray session."""
    check_watch(stage.watch)
    work = job.work
    start = with_query_model(stage, work, job.start)
    folder = fetch_artifact(work, f"models/{start}")
    encoder = worker_job.load_start(folder, stage)
    trained_on = _training_lengths(stage, _starting_card(folder))
    inference_free = encoder.card.inference_free
    sets = [
        prepare.prepare_training_set(
            data,
            model=folder,
            query_max_length=trained_on.query_max_length,
            document_max_length=trained_on.document_max_length,
            store=work,
            options=job.options,
            needs_negative=stage.needs_negative,
            layout=layouts.QueryTermLayout(trained_on, tuple(encoder.vocabulary)) if inference_free else None,
        )
        for data in stage.data_sets
    ]
    for one in sets:
        stage_trainer.check_batch(stage, one.rows, job.train.workers or 1)
        stage_trainer.check_unique(stage, one.queries, one.positives)
    prepare_encoder(encoder, stage)  # reports what the model does not support here, once, instead of on every worker
    corpora = [stage.idf_corpus] if stage.idf_corpus else stage.data_sets
    counted = query_weights.needs_term_counts(encoder, stage.query_weights)
    counts = query_weights.count_terms(corpora, encoder, work, job.options) if counted else None
    first, *further = (one.digest for one in sets)
    inputs = worker_job.LoopInputs(first, tuple(further), term_counts=counts)
    return {**_figures(stage, sets), **ray_train.run_loop(stage, replace(job, start=start), inputs)}


def _pin_sets(stage: FinetuneSettings, options: dict[str, str]) -> dict[str, str]:
    """Return the digest of every data set, by ``data`` or ``data.<number>``."""
    if not isinstance(stage.data, list):
        return {"data": schemas.pin_data(stage.data, options)}
    pins = {}
    for number, data in enumerate(stage.data):
        with errors_of(f"data.{number}"):
            pins[f"data.{number}"] = schemas.pin_data(data, options)
    return pins


def _figures(stage: FinetuneSettings, sets: Sequence[prepare.TrainingSetSummary]) -> dict[str, Any]:
    """Return the training sets, their rows and their bad rows, in all and by data set."""
    rows, bad = [one.rows for one in sets], [sum(one.quarantined.values()) for one in sets]
    figures: dict[str, Any] = {"training_set": " ".join(one.digest for one in sets)}
    figures |= {"rows": sum(rows), "quarantined": sum(bad)}
    if isinstance(stage.data, list):
        for data, good, quarantined in zip(stage.data, rows, bad, strict=True):
            figures |= {f"rows_{data.name}": good, f"quarantined_{data.name}": quarantined}
    return figures


def _starting_card(folder: Path) -> EncoderCard:
    """Return the card of a model directory, with the query length of the encoder that reads queries."""
    card = EncoderCard.load(folder)
    if card.query_encoder != "separate":
        return card
    return replace(card, query_max_length=EncoderCard.load(folder / QUERY_FOLDER).query_max_length)


def _training_lengths(stage: FinetuneSettings, start: EncoderCard) -> EncoderCard:
    """Return the card of the start with the lengths of training; warn if they shorten those of the model."""
    trained_on = replace(
        start,
        query_max_length=stage.query_max_length or start.query_max_length,
        document_max_length=stage.document_max_length or start.document_max_length,
    )
    for kind in _KINDS:
        length, before = trained_on.max_length(kind), start.max_length(kind)
        if length < before and getattr(stage, f"card_{kind}_max_length") is None:
            log.warning(
                f"{kind}_max_length {length} also becomes the length of the trained model, which had {before} tokens; "
                f"set card_{kind}_max_length to encode longer texts than those of training"
            )
    return trained_on


def _check_query_encoder(stage: FinetuneSettings, facts: ModelFacts) -> None:
    """Refuse settings that have no effect on how the model encodes queries."""
    if stage.query_weights is not None and facts.query_encoder != "learned":
        problem = f"the model has query_encoder {facts.query_encoder}, so no query weights are trained"
        raise errors.ConfigError("query_weights", problem, "leave it out, or set query_encoder to learned")
    if facts.query_encoder not in ("idf", "learned"):
        if stage.idf_corpus is not None:
            problem = "the model encodes queries itself, so no IDF weights are computed"
            raise errors.ConfigError("idf_corpus", problem, "leave it out, or set query_encoder to idf")
        return
    if facts.query_encoder == "learned":
        if stage.idf_corpus is not None and stage.query_weights and stage.query_weights.initialization != "idf":
            problem = f"query weights start from {stage.query_weights.initialization}, so no IDF weights are computed"
            raise errors.ConfigError("idf_corpus", problem, "leave it out, or set query_weights.initialization to idf")
        return
    for number, regularizer in enumerate(stage.objective.sparsity.regularizers):
        if regularizer.query:
            problem = "queries weighted by IDF are not trained"
            raise errors.ConfigError(f"objective.sparsity.regularizers.{number}.query", problem, "leave it out")
