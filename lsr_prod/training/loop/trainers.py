"""Trainers of the two kinds of loops, retrieval and language modeling, behind one interface."""

from collections.abc import Mapping
from typing import Protocol

from torch import Tensor

from lsr_prod.config.language import LanguageSettings
from lsr_prod.config.train import FinetuneSettings
from lsr_prod.model import SparseEncoder
from lsr_prod.storage import Store
from lsr_prod.storage.artifacts import fetch_artifact
from lsr_prod.training.language.objectives import make_objective
from lsr_prod.training.language.trainer import LanguageTrainer
from lsr_prod.training.loop.job import LoopInputs, LoopSettings
from lsr_prod.training.observers.throughput import ThroughputMeter
from lsr_prod.training.parallel.process_group import Group
from lsr_prod.training.query_weights import initial_weights
from lsr_prod.training.regularizers.ramp import ramp_end
from lsr_prod.training.retrieval.trainer import Trainer
from lsr_prod.training_data.training_set import TrainingSet


class StepOutcome(Protocol):
    """Result of a step.

    Attributes:
        losses: terms of the loss of the global batch by name, and their sum, ``total``.
        grad_norm: norm of all gradients together, before clipping.
        learning_rate: learning rate of this step.
    """

    @property
    def losses(self) -> dict[str, float]: ...  # noqa: D102
    @property
    def grad_norm(self) -> float: ...  # noqa: D102
    @property
    def learning_rate(self) -> float: ...  # noqa: D102

    def figures(self) -> Mapping[str, float]:
        """Return further figures of the step; a collective operation of all workers."""

    def count(self, meter: ThroughputMeter) -> None:
        """Add the work of the step to the meter."""


class StageTrainer(Protocol):
    """Trainer of a stage on one worker."""

    step: int  # completed steps
    steps: int  # steps of the stage
    encoder: SparseEncoder  # the module; its parameters may be shards

    def train_step(self) -> StepOutcome:
        """Run the next step."""

    def figures(self) -> Mapping[str, float | None]:
        """Return figures of all steps so far; a collective operation of all workers."""

    @property
    def sharded(self) -> bool:
        """True if each worker holds only a shard of the weights."""

    def weights(self, keep: bool) -> dict[str, Tensor]:
        """Return the trained parameters, whole and on the CPU, on workers with ``keep``; a collective operation."""

    def tensors(self, keep: bool) -> dict[str, dict[str, Tensor]]:
        """Return the tensors of a checkpoint by part, on workers with ``keep``; a collective operation."""

    def load(self, step: int, tensors: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Restore the tensors of a checkpoint of ``step`` steps."""


def make_trainer(
    stage: LoopSettings, encoder: SparseEncoder, work: Store, inputs: LoopInputs, group: Group
) -> StageTrainer:
    """Create the trainer of a stage, at step 0."""
    data = TrainingSet.open(work, inputs.training_set)
    if isinstance(stage, FinetuneSettings):
        weights = initial_weights(encoder, inputs.term_counts, work)
        further = [TrainingSet.open(work, digest) for digest in inputs.further_sets]
        return Trainer(encoder, [data, *further], stage, group, query_weights=weights)
    teacher = None if inputs.teacher is None else fetch_artifact(work, f"models/{inputs.teacher}")
    objective = make_objective(stage, encoder, new_tokens=inputs.new_tokens, teacher=teacher)
    return LanguageTrainer(encoder, data, stage, group, objective)


def ramps_end(stage: LoopSettings, steps: int) -> int:
    """Return the first step at which all regularizers have their full weights."""
    if isinstance(stage, LanguageSettings):
        return 0
    return max((ramp_end(one, steps) for one in stage.objective.sparsity.regularizers), default=0)
