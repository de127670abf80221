"""Result of a training loop: the model directory and the figures of its last checkpoint."""

from pathlib import Path
from typing import Any

import ray.train

from lsr_prod.config.language import LanguageSettings
from lsr_prod.config.train import FinetuneSettings
from lsr_prod.model import SparseEncoder
from lsr_prod.training.encoder_setup.freeze import freeze
from lsr_prod.training.encoder_setup.lora import add_lora, merge_lora
from lsr_prod.training.encoder_setup.sides import freeze_side, trained_module
from lsr_prod.training.loop.checkpoint import REPORTS_FILE, read_checkpoint
from lsr_prod.training.loop.checkpoint_store import open_checkpoint
from lsr_prod.training.observers.best import Best
from lsr_prod.training.observers.reporter import read_log
from lsr_prod.training.optimizer import QUERY_WEIGHTS, load_weights
from lsr_prod.training.steps import LoopSettings

_SUMMARIZED = ("loss", "accuracy", "l0_query", "l0_document", "flops", "dead_terms", "docs_per_s")


def save_result(
    encoder: SparseEncoder, last: ray.train.Checkpoint, stage: LoopSettings, name: str, output: Path
) -> dict[str, Any]:
    """Save the weights of the last checkpoint, or of the best validation with ``keep_best``, as a model directory.

    Returns:
        Steps, last loss, last validation; of the watched measure the values at the start and at the best validation;
        ``stopped_early`` if early stopping ended the training.
    """
    with open_checkpoint(last) as folder:
        checkpoint = read_checkpoint(folder, name=name)
        figures = last_reports(folder / REPORTS_FILE) | start_and_best(folder / REPORTS_FILE, stage)
    if stage.scale.lora is not None:
        add_lora(encoder.model, stage.scale.lora)
    if isinstance(stage, LanguageSettings):
        freeze(encoder.model, stage.trained)  # checkpoints contain no frozen weights
    else:
        freeze_side(encoder, stage.trained)
    weights = checkpoint.tensors.get("best", checkpoint.tensors["weights"])
    load_weights(trained_module(encoder), weights)
    encoder.query_weights = weights.get(QUERY_WEIGHTS, encoder.query_weights)
    if stage.scale.lora is not None:
        merge_lora(encoder.model)
    encoder.save(output)
    best = Best(stage.validation if isinstance(stage, FinetuneSettings) else None)
    best.load_state(checkpoint.state["best"], None)
    return {"steps": checkpoint.step, **figures, **({"stopped_early": True} if best.stopped else {})}


def last_reports(path: Path) -> dict[str, Any]:
    """Return the last loss and sparsity, and the last validation, of a file of reports."""
    found: dict[str, Any] = {}
    for report in read_log(path):
        values = report["values"]
        found |= {key: values[key] for key in values if key in _SUMMARIZED or key.startswith("validation/")}
    return found


def start_and_best(path: Path, stage: LoopSettings) -> dict[str, Any]:
    """Return the watched measure at the start and at the best validation of a file of reports.

    That is ``validation.keep_best``, the first of ``validation.measures``, or the validation loss of a language model.

    Returns:
        ``start``, ``best`` and ``best_step``; empty without a validation.
    """
    if stage.validation is None:
        return {}
    validations = [
        (report["step"], {name: value for name, value in report["values"].items() if name.startswith("validation/")})
        for report in read_log(path)
    ]
    validations = [(step, values) for step, values in validations if values]
    if isinstance(stage, FinetuneSettings):
        name, sign = f"validation/{stage.validation.watched}", 1
    else:
        name, sign = next((name for _, values in validations for name in values), ""), -1
    found = [(step, values[name]) for step, values in validations if isinstance(values.get(name), float)]
    if not found:
        return {}
    step, value = max(found, key=lambda one: (sign * one[1], -one[0]))
    start = {"start": found[0][1]} if found[0][0] == 0 else {}
    return {**start, "best": value, "best_step": step}
