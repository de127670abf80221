"""The common part of the trainers of retrieval and of language modeling: steps, batches, weights and checkpoints."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Protocol

import torch

from lsr_prod import logs
from lsr_prod.config.training import FinetuneSettings, LoopSettings
from lsr_prod.errors import ConfigError
from lsr_prod.extras import contrib
from lsr_prod.model import SparseEncoder
from lsr_prod.training import encoder_setup, process_group, replica
from lsr_prod.training.observers.throughput import ThroughputMeter

log = logs.get_log(__name__)
Tensors = Iterable[tuple[str, torch.Tensor]]


class StepOutcome(Protocol):
    """Result of a step."""

    @property
    def losses(self) -> dict[str, float]:
        """Terms of the loss of the global batch by name, and their sum, ``total``."""

    @property
    def grad_norm(self) -> float:
        """Norm of all gradients together, before clipping."""

    @property
    def learning_rate(self) -> float:
        """Learning rate of this step."""

    def figures(self) -> Mapping[str, float]:
        """Return further figures of the step; a collective operation of all workers."""

    def count(self, meter: ThroughputMeter) -> None:
        """Add the work of the step to the meter."""


class StageTrainer(ABC):
    """Trainer of a stage on one worker."""

    step: int  # completed steps
    steps: int  # steps of the stage
    encoder: SparseEncoder  # the module; its parameters are shards under FSDP2
    bf16: bool  # whether matrices are multiplied in it
    _replica: replica.Replica
    _optimizer: replica.OptimizerStep

    def __init__(self, encoder: SparseEncoder, settings: LoopSettings, group: process_group.Group, *rows: int) -> None:
        """Prepare the encoder for a training on sets of ``rows`` rows; subclasses distribute it."""
        self._group = group
        self.step, self.steps = 0, total_steps(settings, *rows)
        for count in rows:
            check_batch(settings, count, group.world)
        self.bf16 = encoder_setup.uses_bf16(encoder, settings.scale, group.device)
        if self.bf16 and group.rank == 0 and not encoder_setup.multiplies_bf16(group.device):
            log.warning("bf16 is emulated here, at many times the time of fp32: set scale.precision to auto or fp32")
        encoder_setup.prepare_encoder(encoder, settings)
        if group.device.type == "cpu":
            for model in encoder_setup.models_of(encoder):
                contrib("cpu_training").use_cpu_kernels(model)

    @abstractmethod
    def train_step(self) -> StepOutcome:
        """Run the next step: batch, forward and backward pass, optimizer, observation."""

    def figures(self) -> Mapping[str, float | None]:
        """Return figures of all steps so far; a collective operation of all workers."""
        return {}

    @property
    def full_rate(self) -> float | str:
        """The learning rate after the warm-up; "auto" until it is set."""
        return self._optimizer.full_rate

    @full_rate.setter
    def full_rate(self, rate: float) -> None:
        self._optimizer.full_rate = rate

    @property
    def sharded(self) -> bool:
        """True if each worker holds only a shard of the weights."""
        return self._replica.sharded

    def weights(self, keep: bool) -> dict[str, torch.Tensor]:
        """Return the trained parameters, whole and on the CPU, on workers with ``keep``; a collective operation."""
        return self._optimizer.weights(keep)

    def tensors(self, keep: bool) -> dict[str, dict[str, torch.Tensor]]:
        """Return the tensors of a checkpoint by part, on workers with ``keep``; a collective operation."""
        parts: dict[str, Tensors] = {"weights": self.weights(keep).items(), "optimizer": self._optimizer.state()}
        parts |= self._states()
        return {part: {name: value for name, value in tensors if keep} for part, tensors in parts.items()}

    def _states(self) -> Mapping[str, Tensors]:
        """Return further parts of a checkpoint."""
        return {}

    @torch.no_grad()
    def load(self, step: int, tensors: Mapping[str, Mapping[str, torch.Tensor]]) -> None:
        """Restore the tensors of a checkpoint of ``step`` steps."""
        self.step = step
        self._optimizer.load(tensors["weights"], tensors["optimizer"])


def batch_rows(stage: LoopSettings) -> int:
    """Return the rows of a batch: its queries, or its texts."""
    return stage.batch.queries if isinstance(stage, FinetuneSettings) else stage.batch.texts


def total_steps(stage: LoopSettings, *rows: int) -> int:
    """Return the steps of the stage over training sets of these numbers of rows."""
    if stage.steps is not None:
        return stage.steps
    assert stage.epochs is not None
    return max(1, round(stage.epochs * sum(count // batch_rows(stage) for count in rows)))


def check_batch(stage: LoopSettings, rows: int, workers: int) -> None:
    """Reject a batch that the data or the workers cannot fill."""
    one, several = ("query", "queries") if isinstance(stage, FinetuneSettings) else ("text", "texts")
    batch, part = batch_rows(stage), batch_rows(stage) // stage.batch.accumulate
    if rows < batch:
        problem = f"{batch} is more than the {rows} rows of data"
        raise ConfigError(f"batch.{several}", problem, "lower it, or give more data")
    if part < workers:
        raise ConfigError("train.workers", f"{workers} cannot share {part} {several}", f"give each at least one {one}")
    if isinstance(stage, FinetuneSettings) and stage.scale.strategy == "fsdp" and part % workers:
        problem = f"{part} queries do not divide among {workers} workers"
        raise ConfigError("batch.queries", problem, "fsdp needs equal shares; give a multiple")


def check_unique(settings: FinetuneSettings, queries: int, positives: int) -> None:
    """Reject unique batches that the data cannot fill."""
    most = min(queries, positives)
    if settings.batch.unique and most < settings.batch.queries:
        raise ConfigError(
            "batch.unique",
            f"the data has {queries} different queries and {positives} different positives, too few for "
            f"{settings.batch.queries} rows that differ in both",
            f"lower batch.queries to {most} or less, or set batch.unique to false",
        )
