"""Result of a training loop: the model directory and the figures of its last checkpoint.

Private and unstable interfaces of Ray Train: the only module of the training that uses them.

Ray Train's trainer is not made for a local Ray without dashboard, nor for a controller that is killed:

- Placement groups of a dead controller are released by a detached actor, which asks Ray's dashboard whether the
  controller is alive, and waits forever if there is none: no new controller would get the resources. Here the driver
  releases them itself (``held_groups``, ``release_groups``).
- The handler of Ctrl-C aborts the controller, which is indistinguishable from its death, and stays installed after the
  run. Without it, Ctrl-C ends the job, and its connection to Ray ends its actors.
- An actor gives datasets of Ray Data to the workers: a process that imports Ray Data, and has no work here, where the
  workers read training sets themselves.
- The list of checkpoints is rewritten in place (``CHECKPOINT_LIST``), so that a kill can damage it; ``resumption``
  reads and removes it.

An upgrade of Ray that moves one of these names fails at import, or in the tests of resumption.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ray
import ray.train
from ray._raylet import PlacementGroupID
from ray.train.v2._internal.callbacks.datasets import DatasetsCallback
from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
from ray.train.v2.api.result import Result as Result
from ray.util.placement_group import PlacementGroup, placement_group_table, remove_placement_group
from torch import Tensor

from lsr_prod.config import language, training
from lsr_prod.logs import get_log
from lsr_prod.model import SparseEncoder
from lsr_prod.training import encoder_setup, replica
from lsr_prod.training.loop.checkpoint import REPORTS_FILE, Checkpoint, open_checkpoint, read_checkpoint
from lsr_prod.training.observers.reports import read_log

log = get_log(__name__)

CHECKPOINT_LIST = "checkpoint_manager_snapshot.json"
"""File name of Ray Train's list of checkpoints, in the folder of a run."""
CHECKPOINT_PREFIX = "checkpoint_"
"""Prefix of the folders of checkpoints."""
_UNUSED = (PlacementGroupCleanerCallback, DatasetsCallback)
_SUMMARIZED = ("loss", "accuracy", "l0_query", "l0_document", "flops", "dead_terms", "docs_per_s")


class Best:
    """Weights of the best validation by the measure ``validation.keep_best``, and early stopping."""

    def __init__(self, settings: training.ValidationSettings | None) -> None:
        self._settings = settings
        self.step: int | None = None  # completed steps at the best validation; None without ``keep_best``
        self.value: float | None = None  # the measure at that step
        self.weights: Mapping[str, Tensor] | None = None  # at that step; on the first worker only
        self._reference: float | None = None
        self._without_improvement = 0

    @property
    def stopped(self) -> bool:
        """True after ``validation.stop_after`` consecutive validations without improvement; part of a checkpoint."""
        limit = None if self._settings is None else self._settings.stop_after
        return limit is not None and self._without_improvement >= limit

    def offer(self, step: int, measures: Mapping[str, float], weights: Mapping[str, Tensor]) -> None:
        """Record a validation; of equally good ones the first is kept."""
        if self._settings is None:
            return
        value = measures[self._settings.watched]
        if self._settings.keeps_best and (self.value is None or value > self.value):
            self.step, self.value, self.weights = step, value, weights
        if self._reference is None or value > self._reference + self._settings.min_delta:
            self._reference, self._without_improvement = value, 0
        else:
            self._without_improvement += 1

    def state(self) -> dict[str, Any]:
        """Return the state of a checkpoint without the weights, as JSON values."""
        return {
            "step": self.step,
            "value": self.value,
            "reference": self._reference,
            "without_improvement": self._without_improvement,
        }

    def load_state(self, state: Mapping[str, Any], weights: Mapping[str, Tensor] | None) -> None:
        """Restore a checkpoint."""
        self.step, self.value, self.weights = state["step"], state["value"], weights
        self._reference, self._without_improvement = state["reference"], state["without_improvement"]


def save_result(
    encoder: SparseEncoder, last: ray.train.Checkpoint, stage: training.LoopSettings, name: str, output: Path
) -> dict[str, Any]:
    """Save the weights of the last checkpoint, or of the best validation with ``keep_best``, as a model directory.

    Without ``keep_best``, the weights of the start are kept if training did not help; ``note`` says so. The figures are
    steps, a learning rate that was found, last loss, last validation, and the watched measure at the start and at the
    best validation.
    """
    with open_checkpoint(last) as folder:
        checkpoint, reports = read_checkpoint(folder, name=name), folder / REPORTS_FILE
        figures = last_reports(reports) | start_and_best(reports, stage)
        # Learned query weights that begin with this stage are in no model directory.
        has_start = encoder.card.query_encoder != "learned" or encoder.query_weights is not None
        keeps_start = has_start and is_start_better(reports, stage)
    if not keeps_start:
        _load_trained(encoder, checkpoint, stage)
    encoder.save(output)
    if stage.optimizer.learning_rate == "auto":
        figures["learning_rate"] = checkpoint.state["full_rate"]
    validation = stage.validation if isinstance(stage, training.FinetuneSettings) else None
    best = Best(validation)
    best.load_state(checkpoint.state["best"], None)
    if validation is not None and (keeps_start or best.step == 0):
        before, after = figures["start"], figures[f"validation/{validation.watched}"]
        figures["note"] = (
            f"training did not help: the untrained weights were kept ({validation.watched} was {before:.4f} before, "
            f"{after:.4f} after the last step)"
        )
        log.warning(figures["note"])
    return {"steps": checkpoint.step, **figures, **({"stopped_early": True} if best.stopped else {})}


def _load_trained(encoder: SparseEncoder, checkpoint: Checkpoint, stage: training.LoopSettings) -> None:
    """Load the weights that a checkpoint keeps into the encoder that the stage started from."""
    if stage.scale.lora is not None:
        encoder_setup.add_lora(encoder.model, stage.scale.lora)
    if isinstance(stage, language.LanguageSettings):
        encoder_setup.freeze(encoder.model, stage.trained)  # checkpoints contain no frozen weights
    else:
        encoder_setup.freeze_side(encoder, stage.trained)
    weights = checkpoint.tensors.get("best", checkpoint.tensors["weights"])
    replica.load_weights(encoder_setup.trained_module(encoder), weights)
    encoder.query_weights = weights.get(replica.QUERY_WEIGHTS, encoder.query_weights)
    if stage.scale.lora is not None:
        encoder_setup.merge_lora(encoder.model)


def last_reports(path: Path) -> dict[str, Any]:
    """Return the last loss and sparsity, and the last validation, of a file of reports."""
    found: dict[str, Any] = {}
    for report in read_log(path):
        values = report["values"]
        found |= {key: values[key] for key in values if key in _SUMMARIZED or key.startswith("validation/")}
    return found


def start_and_best(path: Path, stage: training.LoopSettings) -> dict[str, Any]:
    """Return ``start``, ``best`` and ``best_step`` of the watched measure in a file of reports.

    That is ``validation.keep_best``, the first of ``validation.measures``, or the validation loss of a language model.
    """
    if stage.validation is None:
        return {}
    validations = _validations(path)
    if isinstance(stage, training.FinetuneSettings):
        name, sign = f"validation/{stage.validation.watched}", 1
    else:
        name, sign = next((name for _, values in validations for name in values), ""), -1
    found = [(step, values[name]) for step, values in validations if isinstance(values.get(name), float)]
    if not found:
        return {}
    step, value = max(found, key=lambda one: (sign * one[1], -one[0]))
    start = {"start": found[0][1]} if found[0][0] == 0 else {}
    return {**start, "best": value, "best_step": step}


def is_start_better(path: Path, stage: training.LoopSettings) -> bool:
    """Return whether the start is kept by default: the watched measure was better there, with no more FLOPS."""
    validation = stage.validation if isinstance(stage, training.FinetuneSettings) else None
    validations = _validations(path)
    if validation is None or validation.keep_best is not None or not validations or validations[0][0] > 0:
        return False
    names = (f"validation/{validation.watched}", "validation/flops")
    found = [values.get(name) for _, values in (validations[0], validations[-1]) for name in names]
    numbers = [value for value in found if isinstance(value, float)]  # one that is not finite is a string
    if len(numbers) < len(found):
        return False
    start, start_flops, last, last_flops = numbers
    return start > last and start_flops <= last_flops


def _validations(path: Path) -> list[tuple[int, dict[str, Any]]]:
    """Return the step and the values of each validation in a file of reports."""
    reports = ((report["step"], report["values"].items()) for report in read_log(path))
    found = (
        (step, {name: value for name, value in items if name.startswith("validation/")}) for step, items in reports
    )
    return [(step, values) for step, values in found if values]


class RayTrainer(DataParallelTrainer):
    """Ray Train's trainer without the cleaner of placement groups, the datasets and the handler of Ctrl-C."""

    def _create_default_callbacks(self) -> list[Any]:
        return [one for one in super()._create_default_callbacks() if not isinstance(one, _UNUSED)]

    def _register_sigint_handler(self, controller: Any) -> None:
        """Install no handler."""


def held_groups() -> set[str]:
    """Return the ids of this job's placement groups that are not removed."""
    job = ray.get_runtime_context().get_job_id()
    groups: dict[str, dict[str, Any]] = placement_group_table()
    return {name for name, group in groups.items() if name.endswith(job) and group["state"] != "REMOVED"}


def release_groups(names: set[str]) -> None:
    """Remove placement groups, so that a new controller gets their resources."""
    for name in names:
        remove_placement_group(PlacementGroup(PlacementGroupID(bytes.fromhex(name))))


def listed_checkpoints(content: Any) -> set[str]:
    """Return the folder names in a list of checkpoints."""
    return {str(one["checkpoint_dir_name"]) for one in content["checkpoint_results"]}
