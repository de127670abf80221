"""Training on plain text by one worker: a step from batch to updated weights, and the tensors of a checkpoint."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lsr_prod.config.language import LanguageSettings
from lsr_prod.extras import contrib
from lsr_prod.model import SparseEncoder
from lsr_prod.training.batch_sampler import BatchSampler
from lsr_prod.training.encoder_setup.prepare import prepare_encoder
from lsr_prod.training.language.objective import LanguageBatch, LanguageModule, LanguageObjective
from lsr_prod.training.language.steps import check_texts, language_steps
from lsr_prod.training.observers.throughput import ThroughputMeter
from lsr_prod.training.optimizer import OptimizerStep
from lsr_prod.training.parallel.process_group import Group
from lsr_prod.training.parallel.replica import Replica
from lsr_prod.training.parallel.totals import sum_of_workers
from lsr_prod.training.rng import seed_torch
from lsr_prod.training_data.training_set import TrainingSet


@dataclass(frozen=True, slots=True)
class LanguageStep:
    """Result of one step."""

    losses: dict[str, float]  # the loss of the global batch, ``total``, and its terms by name
    grad_norm: float  # norm of all gradients together, before clipping
    learning_rate: float  # learning rate of this step
    others: dict[str, float]  # further reported figures, means over predictions
    texts: int  # texts of this worker
    tokens: int  # tokens of these texts, padding excluded
    predicted: int | None  # tokens of this worker with logits; None: the objective computes vectors
    active: int  # (text, term) pairs of this worker's vectors with a weight above 0

    def figures(self) -> dict[str, float]:
        """Return the figures other than the loss."""
        return self.others

    def count(self, meter: ThroughputMeter) -> None:
        """Add the work of this step to the meter."""
        meter.count(documents=self.texts, tokens=self.tokens, active=self.active, predicted=self.predicted)


class LanguageTrainer:
    """Trainer of a stage on plain text on one worker.

    Attributes:
        step: completed steps.
        steps: steps of the stage.
        encoder: the module; its parameters are shards under FSDP2.
    """

    def __init__(
        self,
        encoder: SparseEncoder,
        data: TrainingSet,
        settings: LanguageSettings,
        group: Group,
        objective: LanguageObjective,
    ) -> None:
        """Start at step 0."""
        self._settings, self._data, self._group, self._objective = settings, data, group, objective
        self.step, self.steps = 0, language_steps(settings, data.rows)
        check_texts(settings, data.rows, group.world)
        prepare_encoder(encoder, settings)
        if group.device.type == "cpu":
            contrib("cpu_training").use_cpu_kernels(encoder.model)
        self._replica = Replica(
            encoder, settings.scale.strategy, group, around=lambda one: LanguageModule(one, objective)
        )  # fmt: skip
        self.encoder = encoder.train()
        self._optimizer = OptimizerStep(encoder.model, settings.optimizer)
        lengths = data.lengths if settings.batch.group_by_length else None
        self._sampler = BatchSampler(data.rows, settings.batch.texts, settings.seed, lengths)
        self._autocast = settings.scale.precision == "bf16"

    def train_step(self) -> LanguageStep:
        """Run the next step: batch, forward and backward pass, optimizer."""
        rate = self._optimizer.begin(self.step, self.steps)
        parts = self._parts()
        predicted = sum(part.predicted for part in parts)
        all_predicted = max(1, int(sum_of_workers(torch.tensor(predicted))))
        sums = torch.stack(
            [self._backward(part, number, number == len(parts) - 1, all_predicted) for number, part in enumerate(parts)]
        ).sum(dim=0)
        norm = self._optimizer.apply()
        self.step += 1
        names, losses = ("total", *self._objective.losses, *self._objective.figures), len(self._objective.losses)
        means = dict(zip(names, (sum_of_workers(sums) / all_predicted).tolist(), strict=True))
        return LanguageStep(
            losses={name: means[name] for name in names[: 1 + losses]},
            grad_norm=float(norm),
            learning_rate=rate,
            others={name: means[name] for name in names[1 + losses :]},
            texts=sum(part.texts for part in parts),
            tokens=sum(part.tokens for part in parts),
            predicted=None if self._objective.pools else predicted,
            active=int(sums[1 + losses]) if self._objective.pools else 0,
        )

    def _parts(self) -> list[LanguageBatch]:
        """Return this worker's batch of each part of the step."""
        return [
            self._objective.batch(self._data.examples(rows), rows, self.step)
            for rows in self._sampler.worker_rows(self.step, self._settings.batch.accumulate, self._group)
        ]

    def _backward(self, part: LanguageBatch, number: int, last: bool, all_predicted: int) -> Tensor:
        """Add the gradient of a part; return the sums of its loss, terms and figures."""
        device = self._group.device
        seed_torch(self._settings.seed, self.step, self._group.rank, number)
        with self._replica.synchronized(last=last):
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=self._autocast):
                total, sums = self._replica.run(*(one.to(device, non_blocking=True) for one in part.inputs))
            # The gradients of workers are averaged, not added.
            torch.autograd.backward(total * (self._group.world / all_predicted))
        return torch.cat([total.detach()[None], sums]).to(torch.float64)

    def figures(self) -> dict[str, float | None]:
        """Return figures of all steps so far: none."""
        return {}

    @property
    def sharded(self) -> bool:
        """True if each worker holds only a shard of the weights."""
        return self._replica.sharded

    def weights(self, keep: bool) -> dict[str, Tensor]:
        """Return the trained parameters, whole and on the CPU; a collective operation of all workers."""
        return self._optimizer.weights(keep)

    def tensors(self, keep: bool) -> dict[str, dict[str, Tensor]]:
        """Return the tensors of a checkpoint by part; a collective operation of all workers."""
        state: Any = self._optimizer.state()
        return {"weights": self.weights(keep), "optimizer": {name: value for name, value in state if keep}}

    def load(self, step: int, tensors: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Restore the tensors of a checkpoint of ``step`` steps."""
        self.step = step
        self._optimizer.load(tensors["weights"], tensors["optimizer"])
