"""The stage ``finetune``: a model directory is trained for retrieval on Ray Train and becomes another."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lsr_prod.config.train import FinetuneSettings, TrainSettings
from lsr_prod.storage import Store
from lsr_prod.storage.folders import fetch_folder
from lsr_prod.training.loops import LoopInputs, load_start
from lsr_prod.training.query_weights import count_terms
from lsr_prod.training.ray_loop import run_loop
from lsr_prod.training.trainer import check_batch, prepare_encoder
from lsr_prod.training.watch import check_watch
from lsr_prod.training_data.layouts import QueryTermLayout
from lsr_prod.training_data.prepare import prepare_training_set

__all__ = ["finetune"]


def finetune(
    stage: FinetuneSettings, train: TrainSettings, *, start: str, name: str, output: Path, options: dict[str, str]
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
        A flat summary: training_set (digest), steps, rows, quarantined rows, the last loss, the best validation.

    Raises:
        ConfigError: a setting does not fit the model or the data; nothing was trained.
        TrainingCollapsedError: vectors became empty or full, or the loss is no number.
        WorkersLostError: workers died more often than ``train.max_failures``.
    """
    check_watch(stage.watch)
    work = Store(train.work, options)
    folder = fetch_folder(work, f"models/{start}")
    encoder = load_start(folder, stage)
    weighed = encoder.card.query_encoder == "idf"
    data = prepare_training_set(
        stage.data,
        model=folder,
        query_max_length=encoder.card.query_max_length,
        document_max_length=encoder.card.document_max_length,
        store=work,
        options=options,
        negatives=stage.batch.negatives,
        layout=QueryTermLayout(encoder.card, tuple(encoder.vocabulary)) if weighed else None,
    )
    check_batch(stage, data.rows, train.workers)
    prepare_encoder(encoder, stage)  # what the model cannot do is refused here, not by every worker
    counted = stage.idf_corpus or stage.data
    inputs = LoopInputs(data.digest, term_counts=count_terms(counted, encoder, work, options) if weighed else None)
    summary = run_loop(stage, train, inputs, work=work, start=start, name=name, output=output)
    return {"training_set": data.digest, "rows": data.rows, "quarantined": sum(data.quarantined.values()), **summary}
