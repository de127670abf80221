"""The stages on plain text: a model directory is trained as a language model, or by a teacher, and becomes another."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lsr_prod.config.language import (
    AdaptCausalSettings,
    AdaptMlmSettings,
    DistilHeadSettings,
    LanguageSettings,
    PretrainEmlmSettings,
)
from lsr_prod.config.train import TrainSettings
from lsr_prod.config.training_data import TrainingDataSettings
from lsr_prod.formats.card import EncoderCard
from lsr_prod.formats.digest import read_record
from lsr_prod.model import SparseEncoder, model_digest
from lsr_prod.model.backbone import output_layer
from lsr_prod.model.source import output_vocabulary
from lsr_prod.storage import Store
from lsr_prod.storage.folders import fetch_folder, put_folder
from lsr_prod.terms.surfaces import Terms, align
from lsr_prod.training.facts import TRANSFER_FILE
from lsr_prod.training.language_trainer import prepare_language
from lsr_prod.training.loops import LoopInputs
from lsr_prod.training.ray_loop import run_loop
from lsr_prod.training.stages.language_check import check_texts, of_validation, reference_file
from lsr_prod.training.watch import check_watch
from lsr_prod.training_data.layouts import Layout, PackedLayout, TeacherLayout, WordLayout
from lsr_prod.training_data.prepare import TrainingSetSummary, prepare_training_set
from lsr_prod.training_data.tokens import TokenSettings

__all__ = ["new_tokens_of", "train_language"]


def train_language(
    stage: LanguageSettings, train: TrainSettings, *, start: str, name: str, output: Path, options: dict[str, str]
) -> Mapping[str, Any]:
    """Train; needs a connection to Ray.

    Args:
        stage: the settings of the stage.
        train: those of the whole chain.
        start: digest of the model directory, which lies in the work store as ``models/<start>``.
        name: digest of the stage; its checkpoints lie under ``runs/<name>``.
        output: the new model directory.
        options: options of the object store.

    Returns:
        A flat summary: training_set (digest), steps, rows (packed blocks count), quarantined rows, the last loss, the
        last validation.

    Raises:
        ConfigError: a setting does not fit the model or the data; nothing was trained.
        TrainingCollapsedError: the loss is no number, or vectors became empty.
        WorkersLostError: workers died more often than ``train.max_failures``.
    """
    check_watch(stage.watch)
    work = Store(train.work, options)
    folder = fetch_folder(work, f"models/{start}")
    encoder = SparseEncoder.load(folder)
    layout = _layout(stage, encoder)
    data = _prepare(stage, stage.data, folder, encoder.card, layout, work, options)
    check_texts(stage, data.rows, train.workers)
    inputs = LoopInputs(
        data.digest,
        validation_set=_validation_set(stage, folder, encoder.card, layout, work, options),
        new_tokens=new_tokens_of(stage, encoder, folder) if isinstance(stage, AdaptMlmSettings) else (),
        teacher=_put_teacher(stage, work) if isinstance(stage, DistilHeadSettings) else None,
    )
    prepare_language(encoder, stage)  # what the model cannot do is refused here, not by every worker
    summary = run_loop(stage, train, inputs, work=work, start=start, name=name, output=output)
    quarantined = sum(data.quarantined.values())
    return {"training_set": data.digest, "rows": data.rows, "quarantined": quarantined, **summary}


def new_tokens_of(stage: AdaptMlmSettings, encoder: SparseEncoder, folder: Path) -> tuple[int, ...]:
    """The tokens that are masked more often: those that the old vocabulary lacks.

    Args:
        stage: ``reference`` names the old vocabulary; unset: the record of the transfer knows them.
        encoder: what is trained.
        folder: its model directory.
    """
    if stage.new_token_weight == 1:
        return ()
    if stage.reference is None:
        return read_record(folder / TRANSFER_FILE, lambda value: tuple(int(one) for one in value["new"]), "transfer it")
    tokenizer = json.loads(reference_file(stage.reference).read_text(encoding="utf-8"))
    model, added = tokenizer["model"]["vocab"], [one["content"] for one in tokenizer["added_tokens"]]
    known = [*(model if isinstance(model, dict) else (piece for piece, _ in model)), *added]
    tokens = output_vocabulary(encoder.tokenizer, len(output_layer(encoder.model)[0]))
    aligned = align(Terms(known), Terms.of(encoder.tokenizer, tokens))
    return tuple(int(token) for token in (aligned < 0).nonzero()[0])


def _layout(stage: LanguageSettings, encoder: SparseEncoder) -> Layout | None:
    match stage:
        case PretrainEmlmSettings():
            return WordLayout(tuple(encoder.vocabulary))
        case AdaptCausalSettings():
            end = encoder.tokenizer.eos_token_id
            assert end is not None
            return PackedLayout(_length(stage, encoder.card), int(end))
        case DistilHeadSettings():
            teacher = Path(stage.teacher)
            card = EncoderCard.load(teacher)
            lengths = {"query_max_length": card.query_max_length, "document_max_length": card.document_max_length}
            return TeacherLayout(TokenSettings.of_model(teacher, **lengths, plain=False))
    return None


def _length(stage: LanguageSettings, card: EncoderCard) -> int:
    return stage.max_length or card.document_max_length


def _prepare(
    stage: LanguageSettings,
    data: TrainingDataSettings,
    folder: Path,
    card: EncoderCard,
    layout: Layout | None,
    work: Store,
    options: dict[str, str],
) -> TrainingSetSummary:
    length = None if isinstance(layout, PackedLayout) else _length(stage, card)
    return prepare_training_set(
        data,
        model=folder,
        query_max_length=length,
        document_max_length=length,
        store=work,
        options=options,
        layout=layout,
    )


def _validation_set(
    stage: LanguageSettings,
    folder: Path,
    card: EncoderCard,
    layout: Layout | None,
    work: Store,
    options: dict[str, str],
) -> str | None:
    if stage.validation is None:
        return None
    with of_validation():
        return _prepare(stage, stage.validation.data, folder, card, layout, work, options).digest


def _put_teacher(stage: DistilHeadSettings, work: Store) -> str:
    """The teacher goes into the work store, which every worker reaches."""
    digest = model_digest(Path(stage.teacher))
    put_folder(work, f"models/{digest}", Path(stage.teacher))
    return digest
