"""Training on plain text by one worker: a step from batch to updated weights, and the tensors of a checkpoint."""

from dataclasses import dataclass

import torch
from torch import Tensor

from lsr_prod.config.language import LanguageSettings
from lsr_prod.model import SparseEncoder
from lsr_prod.training.batch_sampler import BatchSampler
from lsr_prod.training.data.training_set import TrainingSet
from lsr_prod.training.language.objective import LanguageBatch, LanguageModule, LanguageObjective
from lsr_prod.training.observers.throughput import ThroughputMeter
from lsr_prod.training.optimizer import OptimizerStep
from lsr_prod.training.process_group import Group, sum_of_workers
from lsr_prod.training.replica import Replica
from lsr_prod.training.stage_trainer import StageTrainer
from lsr_prod.training.twins import seed_torch


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


class LanguageTrainer(StageTrainer):
    """Trainer of a stage on plain text on one worker."""

    def __init__(
        self,
        encoder: SparseEncoder,
        data: TrainingSet,
        settings: LanguageSettings,
        group: Group,
        objective: LanguageObjective,
    ) -> None:
        super().__init__(encoder, settings, group, data.rows)
        self._settings, self._data, self._objective = settings, data, objective
        self._replica = Replica(
            encoder, settings.scale.strategy, group, around=lambda one: LanguageModule(one, objective)
        )  # fmt: skip
        self.encoder = encoder.train()
        self._optimizer = OptimizerStep(encoder.model, settings.optimizer)
        lengths = data.lengths if settings.batch.group_by_length else None
        self._sampler = BatchSampler(data.rows, settings.batch.texts, settings.seed, lengths)

    def train_step(self) -> LanguageStep:
        """Run the next step: batch, forward and backward pass, optimizer."""
        rate = self._optimizer.begin(self.step, self.steps)
        parts = [
            self._objective.batch(self._data.examples(rows), rows, self.step)
            for rows in self._sampler.worker_rows(self.step, self._settings.batch.accumulate, self._group)
        ]
        predicted = sum(part.predicted for part in parts)
        all_predicted = max(1, int(sum_of_workers(torch.tensor(predicted))))
        every = [self._backward(parts, number, all_predicted) for number in range(len(parts))]
        sums = torch.stack(every).sum(dim=0)
        norm = self._optimizer.apply()
        self.step += 1
        means, losses = (sum_of_workers(sums) / all_predicted).tolist(), ("total", *self._objective.losses)
        return LanguageStep(
            losses=dict(zip(losses, means, strict=False)),
            grad_norm=float(norm),
            learning_rate=rate,
            others=dict(zip(self._objective.figures, means[len(losses) :], strict=True)),
            texts=sum(part.texts for part in parts),
            tokens=sum(part.tokens for part in parts),
            predicted=None if self._objective.pools else predicted,
            active=int(sums[len(losses)]) if self._objective.pools else 0,
        )

    def _backward(self, parts: list[LanguageBatch], number: int, all_predicted: int) -> Tensor:
        """Add the gradient of a part; return the sums of its loss, terms and figures."""
        device, part, last = self._group.device, parts[number], number == len(parts) - 1
        seed_torch(self._settings.seed, self.step, self._group.rank, number)
        with self._replica.synchronized(last=last):
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=self.bf16):
                total, sums = self._replica.run(*(one.to(device, non_blocking=True) for one in part.inputs))
            # The gradients of workers are averaged, not added.
            torch.autograd.backward(total * (self._group.world / all_predicted))
        return torch.cat([total.detach()[None], sums]).to(torch.float64)
