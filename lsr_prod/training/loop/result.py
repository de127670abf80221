"""Result of a training loop: the model directory and the figures of its last checkpoint."""

from pathlib import Path
from typing import Any

import ray.train

from lsr_prod.config.language import LanguageSettings
from lsr_prod.model import SparseEncoder
from lsr_prod.training.encoder_setup.freeze import freeze
from lsr_prod.training.encoder_setup.lora import add_lora, merge_lora
from lsr_prod.training.loop.checkpoint import REPORTS_FILE, read_checkpoint
from lsr_prod.training.loop.checkpoint_store import open_checkpoint
from lsr_prod.training.loop.job import LoopSettings
from lsr_prod.training.observers.reporter import read_log
from lsr_prod.training.optimizer import QUERY_WEIGHTS, load_weights

__all__ = ["last_reports", "save_result"]

_SUMMARIZED = ("loss", "accuracy", "l0_query", "l0_document", "flops", "dead_terms", "docs_per_s")


def save_result(
    encoder: SparseEncoder, last: ray.train.Checkpoint, stage: LoopSettings, name: str, output: Path
) -> dict[str, Any]:
    """Save the weights of the last checkpoint, or of the best validation with ``keep_best``, as a model directory.

    Args:
        encoder: the encoder that the stage started from; changed in place.
        last: the last checkpoint.
        stage: the settings of the stage.
        name: digest of the stage.
        output: the new model directory.

    Returns:
        Steps, last loss, last or best validation.
    """
    with open_checkpoint(last) as folder:
        checkpoint = read_checkpoint(folder, name=name)
        losses = last_reports(folder / REPORTS_FILE)
    if stage.scale.lora is not None:
        add_lora(encoder.model, stage.scale.lora)
    if isinstance(stage, LanguageSettings):
        freeze(encoder.model, stage.trained)  # checkpoints contain no frozen weights
    weights = checkpoint.tensors.get("best", checkpoint.tensors["weights"])
    load_weights(encoder.model, weights)
    encoder.query_weights = weights.get(QUERY_WEIGHTS, encoder.query_weights)
    if stage.scale.lora is not None:
        merge_lora(encoder.model)
    encoder.save(output)
    best = checkpoint.state["best"]
    summary = {"steps": checkpoint.step, **losses}
    return summary if best["step"] is None else {**summary, "best_step": best["step"], "best": best["value"]}


def last_reports(path: Path) -> dict[str, Any]:
    """Return the last loss and sparsity, and the last validation, of a file of reports."""
    found: dict[str, Any] = {}
    for report in read_log(path):
        values = report["values"]
        found |= {key: values[key] for key in values if key in _SUMMARIZED or key.startswith("validation/")}
    return found
