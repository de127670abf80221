"""The training of a language model by one worker, without Ray: a step, and all that a checkpoint has to keep."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lsr_prod.config.language import LanguageSettings
from lsr_prod.model import SparseEncoder
from lsr_prod.training.batch_sampler import BatchSampler
from lsr_prod.training.encoder_setup.attention import use_cpu_attention
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

__all__ = ["LanguageStep", "LanguageTrainer"]


@dataclass(frozen=True, slots=True)
class LanguageStep:
    """What a step did.

    Attributes:
        losses: the loss of the global batch, ``total``, and its terms by name.
        grad_norm: of all gradients together, before they are scaled down.
        learning_rate: of this step.
        others: what is reported beside the loss, means over what was predicted.
        texts: of this worker.
        tokens: of them, padding excluded.
        predicted: tokens of this worker that logits were made of; None: vectors were made.
        active: (text, term) pairs of this worker's vectors with a weight above 0.
    """

    losses: dict[str, float]
    grad_norm: float
    learning_rate: float
    others: dict[str, float]
    texts: int
    tokens: int
    predicted: int | None
    active: int

    def figures(self) -> dict[str, float]:
        """What is reported beside the loss."""
        return self.others

    def count(self, meter: ThroughputMeter) -> None:
        """Count the work of the step."""
        meter.count(documents=self.texts, tokens=self.tokens, active=self.active, predicted=self.predicted)


class LanguageTrainer:
    """An encoder, its optimizer and texts, at some step.

    Attributes:
        step: steps that are done.
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
        """Start at step 0.

        Args:
            encoder: whole, and equal on every worker.
            data: what it trains on.
            settings: the stage.
            group: this process among the workers.
            objective: what is minimised.

        Raises:
            ConfigError: the data, or the number of workers, does not fit the batch.
        """
        self._settings, self._data, self._group, self._objective = settings, data, group, objective
        self.step, self.steps = 0, language_steps(settings, data.rows)
        check_texts(settings, data.rows, group.world)
        prepare_encoder(encoder, settings)
        if group.device.type == "cpu":
            use_cpu_attention(encoder.model)
        self._replica = Replica(
            encoder, settings.scale.strategy, group, around=lambda one: LanguageModule(one, objective)
        )  # fmt: skip
        self.encoder = encoder.train()
        self._optimizer = OptimizerStep(encoder.model, settings.optimizer)
        lengths = data.lengths if settings.batch.group_by_length else None
        self._sampler = BatchSampler(data.rows, settings.batch.texts, settings.seed, lengths)
        self._autocast = settings.scale.precision == "bf16"

    def train_step(self) -> LanguageStep:
        """Do the next step."""
        rate = self._optimizer.begin(self.step, self.steps)
        parts = self._parts()
        predicted = sum(part.predicted for part in parts)
        everyones = max(1, int(sum_of_workers(torch.tensor(predicted))))
        sums = torch.stack(
            [self._backward(part, number, number == len(parts) - 1, everyones) for number, part in enumerate(parts)]
        ).sum(dim=0)
        norm = self._optimizer.apply()
        self.step += 1
        names, losses = ("total", *self._objective.losses, *self._objective.figures), len(self._objective.losses)
        means = dict(zip(names, (sum_of_workers(sums) / everyones).tolist(), strict=True))
        return LanguageStep(
            losses={name: means[name] for name in names[: 1 + losses]},
            grad_norm=norm,
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

    def _backward(self, part: LanguageBatch, number: int, last: bool, everyones: int) -> Tensor:
        """Add the gradient of a part; the sums of its loss, its terms and its figures."""
        device = self._group.device
        seed_torch(self._settings.seed, self.step, self._group.rank, number)
        with self._replica.synchronized(last=last):
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=self._autocast):
                total, sums = self._replica.run(*(one.to(device, non_blocking=True) for one in part.inputs))
            # The workers' gradients are averaged, not added.
            torch.autograd.backward(total * (self._group.world / everyones))
        return torch.cat([total.detach()[None], sums]).to(torch.float64)

    def figures(self) -> dict[str, float | None]:
        """What is known of all steps so far: nothing more than of the last one."""
        return {}

    @property
    def sharded(self) -> bool:
        """Whether each worker holds a part of the weights only."""
        return self._replica.sharded

    def weights(self, keep: bool) -> dict[str, Tensor]:
        """The trained parameters, whole and on the CPU; every worker has to ask at the same time.

        Args:
            keep: whether this worker wants them; the others get none.
        """
        return self._optimizer.weights(keep)

    def tensors(self, keep: bool) -> dict[str, dict[str, Tensor]]:
        """All that a checkpoint keeps, by part; every worker has to ask at the same time.

        Args:
            keep: whether this worker wants them; the others get empty parts.
        """
        state: Any = self._optimizer.state()
        return {"weights": self.weights(keep), "optimizer": {name: value for name, value in state if keep}}

    def load(self, step: int, tensors: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Go on from what ``tensors`` gave after ``step`` steps."""
        self.step = step
        self._optimizer.load(tensors["weights"], tensors["optimizer"])
