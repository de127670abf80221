"""Stages on plain text: language modeling, and distillation of a teacher's vectors.

- ``adapt_mlm``: masked language modeling, in which new tokens are masked more often;
- ``pretrain_emlm``: masked language modeling of words;
- ``adapt_causal``: predict the next token with the activation of sparse vectors (csplade, 3.2);
- ``distil_head``: learn the sparse vectors of a teacher (vocabulary-transfer, 6.3, SAP).
"""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from lsr_prod.config import (
    AdaptCausalSettings,
    AdaptMlmSettings,
    DistilHeadSettings,
    PretrainEmlmSettings,
    language,
    training,
)
from lsr_prod.errors import ArtifactError, ConfigError
from lsr_prod.inference.terms import surfaces, words
from lsr_prod.model import SparseEncoder, backbone, layout_reader, loading, model_digest
from lsr_prod.storage.artifacts import fetch_artifact, put_artifact
from lsr_prod.storage.formats import bundle_format, digests
from lsr_prod.training import encoder_setup, stage_trainer
from lsr_prod.training.data import layouts, schemas
from lsr_prod.training.data.prepare import prepare_training_set
from lsr_prod.training.loop import ray_train, worker_job
from lsr_prod.training.observers.reports import check_watch
from lsr_prod.training.stages.finetune import check_loop, errors_of
from lsr_prod.training.stages.stage_facts import TRANSFER_FILE, ModelFacts, check_length


def check(
    stage: language.LanguageSettings, train: training.TrainSettings, facts: ModelFacts, options: dict[str, str]
) -> tuple[dict[str, str], ModelFacts]:
    """Check the stage; nothing is written."""
    check_loop(stage, facts)
    stage_trainer.check_batch(stage, stage.batch.texts, train.workers or train.min_workers or 1)
    check_length("max_length", stage.max_length, facts)
    if stage.trained == "head" and facts.tied:
        problem = "the output matrix is tied to the token embeddings, so the head cannot be trained alone"
        remedy = "give embeddings or all, or replace the output vocabulary in an earlier stage"
        raise ConfigError("trained", problem, remedy)
    if stage.validation is not None:
        with errors_of("validation.data"):
            schemas.pin_data(stage.validation.data, options)  # it must exist; it has no influence on the weights
    pins = {"data": schemas.pin_data(stage.data, options)}
    match stage:
        case AdaptMlmSettings():
            pins |= _check_mlm(stage, facts)
        case PretrainEmlmSettings():
            _check_emlm(stage, facts)
        case AdaptCausalSettings():
            _check_causal(facts)
        case DistilHeadSettings():
            pins["teacher"] = _check_teacher(stage, facts)
    return pins, facts


def run(stage: language.LanguageSettings, job: worker_job.StageRun) -> Mapping[str, Any]:
    """Prepare the texts, train the model and return a flat summary; ``rows``: texts or packed blocks. Needs Ray."""
    folder = fetch_artifact(job.work, f"models/{job.start}")
    encoder = SparseEncoder.load(folder)
    layout: layouts.Layout | None = None
    new_tokens: tuple[int, ...] = ()
    teacher = None
    longest = stage.max_length or encoder.card.document_max_length
    length: int | None = longest  # after which texts are cut
    match stage:
        case AdaptMlmSettings():
            new_tokens = find_new_tokens(stage, encoder, folder)
        case PretrainEmlmSettings():
            layout = layouts.WordLayout(tuple(encoder.vocabulary))
        case AdaptCausalSettings():
            end = encoder.tokenizer.eos_token_id
            assert end is not None
            layout, length = layouts.PackedLayout(longest, int(end)), None  # texts are packed whole
        case DistilHeadSettings():
            layout, teacher = _teacher_layout(Path(stage.teacher)), model_digest(Path(stage.teacher))
            put_artifact(job.work, f"models/{teacher}", Path(stage.teacher))  # all workers can read the work store
    check_watch(stage.watch)

    prepare = partial(
        prepare_training_set, model=folder, query_max_length=length, document_max_length=length,
        store=job.work, options=job.options, layout=layout,
    )  # fmt: skip
    data, validation_set = prepare(stage.data), None
    stage_trainer.check_batch(stage, data.rows, job.train.workers or 1)
    if stage.validation is not None:
        with errors_of("validation.data"):
            validation_set = prepare(stage.validation.data).digest
    inputs = worker_job.LoopInputs(data.digest, validation_set=validation_set, new_tokens=new_tokens, teacher=teacher)
    encoder_setup.prepare_encoder(encoder, stage)  # reports what the model does not support here, not on every worker
    summary = ray_train.run_loop(stage, job, inputs)
    return {"training_set": data.digest, "rows": data.rows, "quarantined": sum(data.quarantined.values()), **summary}


def find_new_tokens(stage: AdaptMlmSettings, encoder: SparseEncoder, folder: Path) -> tuple[int, ...]:
    """Return the tokens that the old vocabulary lacks, which are masked more often."""
    if stage.new_token_weight == 1:
        return ()
    if stage.reference is None:
        return digests.read_record(folder / TRANSFER_FILE, lambda value: tuple(map(int, value["new"])), "transfer it")
    tokenizer = json.loads(reference_file(stage.reference).read_text(encoding="utf-8"))
    vocabulary, added = tokenizer["model"]["vocab"], [one["content"] for one in tokenizer["added_tokens"]]
    known = [*(vocabulary if isinstance(vocabulary, dict) else (piece for piece, _ in vocabulary)), *added]
    tokens = loading.output_vocabulary(encoder.tokenizer, len(backbone.output_layer(encoder.model)[0]))
    aligned = surfaces.align(surfaces.Terms(known), surfaces.Terms.of(encoder.tokenizer, tokens))
    return tuple(int(token) for token in (aligned < 0).nonzero()[0])


def _check_mlm(stage: AdaptMlmSettings, facts: ModelFacts) -> dict[str, str]:
    """Check ``adapt_mlm``; return the digest of the old vocabulary, if it is named."""
    _check_masked(stage.stage, facts)
    if facts.output_vocabulary != "tokenizer":
        raise ConfigError(
            "stage", "adapt_mlm predicts tokens, and the model's output terms are words", "take pretrain_emlm"
        )
    if stage.reference is not None:
        return {"reference": digests.digest_path(reference_file(stage.reference))}
    if stage.new_token_weight != 1 and not facts.transferred:
        problem = "the model has no record of which tokens are new"
        remedy = "set it to 1, name the old vocabulary in reference, or put transfer_vocabulary before this stage"
        raise ConfigError("new_token_weight", problem, remedy)
    return {}


def reference_file(reference: str) -> Path:
    """Return the path of the ``tokenizer.json`` that ``reference`` names."""
    path = (
        layout_reader.parts_folder(Path(reference)) / bundle_format.TOKENIZER_FILE
        if Path(reference).is_dir()
        else Path(reference)
    )
    try:
        Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises plain Exception
        problem = f"{reference} has no tokenizer.json that can be read ({error})"
        raise ConfigError("reference", problem, "name that of the old vocabulary") from error
    return path


def _check_emlm(stage: PretrainEmlmSettings, facts: ModelFacts) -> None:
    _check_masked(stage.stage, facts)
    if facts.output_vocabulary != "words":
        problem = "pretrain_emlm predicts words, and the model's output terms are tokens"
        raise ConfigError("stage", problem, "put expand_vocabulary before this stage, or take adapt_mlm")
    if facts.token_head:
        words.refuse_tokens("stage")


def _check_masked(kind: str, facts: ModelFacts) -> None:
    """Refuse a model that cannot predict masked tokens."""
    if facts.kind != "masked" or "mask" not in facts.roles:
        problem = "a causal model" if facts.kind == "causal" else "a model whose tokenizer has no mask token"
        raise ConfigError(
            "stage", f"{kind} predicts masked tokens, and {facts.architecture} is {problem}", "take adapt_causal"
        )


def _check_causal(facts: ModelFacts) -> None:
    if facts.kind != "causal":
        problem = f"adapt_causal predicts the next token, and {facts.architecture} predicts masked tokens"
        raise ConfigError("stage", problem, "take adapt_mlm")
    if "eos" not in facts.roles:
        problem = "texts are packed with the eos token between them, and the tokenizer has none"
        raise ConfigError("stage", problem, "name an eos token in the tokenizer")
    if facts.output_vocabulary != "tokenizer":
        problem = "adapt_causal predicts tokens, and the model's output terms are words"
        raise ConfigError("stage", problem, "put it before the stage that changes the output terms")


def _check_teacher(stage: DistilHeadSettings, facts: ModelFacts) -> str:
    """Check the teacher of ``distil_head``; return its digest."""
    try:
        card = bundle_format.EncoderCard.load(Path(stage.teacher))
        digest = model_digest(Path(stage.teacher))
    except ArtifactError as error:
        raise ConfigError("teacher", str(error), "name a model directory of lsr_prod") from error
    known = facts.vocabulary_sha256
    if card.vocabulary_size != facts.vocabulary_size or (known is not None and card.vocabulary_sha256 != known):
        raise ConfigError(
            "teacher",
            f"its {card.vocabulary_size} output terms differ from the model's {facts.vocabulary_size}",
            "give a teacher with the same output vocabulary, or transfer the model to the teacher's before this stage",
        )
    return digest


def _teacher_layout(teacher: Path) -> layouts.TeacherLayout:
    card = bundle_format.EncoderCard.load(teacher)
    lengths = {"query_max_length": card.query_max_length, "document_max_length": card.document_max_length}
    return layouts.TeacherLayout(layouts.TokenSettings.of_model(teacher, **lengths, plain=False))
