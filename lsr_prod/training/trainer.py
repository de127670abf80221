"""The training of one worker, without Ray: a step, and all that a checkpoint has to keep."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lsr_prod.config.language import LanguageSettings
from lsr_prod.config.train import FinetuneSettings
from lsr_prod.errors import ConfigError
from lsr_prod.model import SparseEncoder
from lsr_prod.training.activity import DeadTerms, measure_activity
from lsr_prod.training.attention import use_cpu_attention
from lsr_prod.training.batches import TrainBatch, make_batch
from lsr_prod.training.kept_terms import KeptTerms
from lsr_prod.training.lora import add_lora
from lsr_prod.training.loss import TrainingLoss
from lsr_prod.training.momentum import SlowNegatives
from lsr_prod.training.order import BatchOrder
from lsr_prod.training.parallel import Replica
from lsr_prod.training.process_group import Group
from lsr_prod.training.randomness import seed_torch
from lsr_prod.training.recompute import recompute_layers
from lsr_prod.training.step import Encoded, StepPlan, backward
from lsr_prod.training.throughput import ThroughputMeter
from lsr_prod.training.updates import Updates
from lsr_prod.training_data.training_set import TrainingSet

__all__ = ["DEAD_AFTER", "StepResult", "Trainer", "check_batch", "prepare_encoder", "total_steps"]

DEAD_AFTER = 500
"""Steps without activation after which a term counts as dead."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step did.

    Attributes:
        losses: terms of the loss of the global batch, by name, means over the parts of the step.
        grad_norm: of all gradients together, before they are scaled down.
        learning_rate: of this step.
        encoded: this worker's vectors.
        tokens: of this worker's texts, padding excluded.
    """

    losses: dict[str, float]
    grad_norm: float
    learning_rate: float
    encoded: list[Encoded]
    tokens: int

    def vectors(self) -> tuple[Tensor, Tensor]:
        """This worker's queries [n, V] and documents [n * c, V] of all parts."""
        if len(self.encoded) == 1:  # as wide as the vocabulary: not copied without need
            return self.encoded[0].queries, self.encoded[0].documents
        return torch.cat([one.queries for one in self.encoded]), torch.cat([one.documents for one in self.encoded])

    def figures(self) -> dict[str, float]:
        """How sparse the vectors of the global batch are; every worker has to call it."""
        return measure_activity(*self.vectors())

    def count(self, meter: ThroughputMeter) -> None:
        """Count the work of the step."""
        queries, documents = self.vectors()
        active = int(torch.count_nonzero(queries)) + int(torch.count_nonzero(documents))
        meter.count(documents=len(documents), tokens=self.tokens, active=active)


class Trainer:
    """An encoder, its optimizer and the data, at some step.

    Attributes:
        step: steps that are done.
        steps: steps of the stage.
        encoder: the module; its parameters are shards under FSDP2.
    """

    def __init__(
        self,
        encoder: SparseEncoder,
        data: TrainingSet,
        settings: FinetuneSettings,
        group: Group,
        *,
        query_weights: Tensor | None = None,
    ) -> None:
        """Start at step 0.

        Args:
            encoder: whole, and equal on every worker.
            data: what it trains on.
            settings: the stage.
            group: this process among the workers.
            query_weights: float32 [V], of an encoder whose queries have no model; queries of the data are output terms.

        Raises:
            ConfigError: the data, or the number of workers, does not fit the batch.
        """
        if (encoder.card.query_encoder == "idf") != (query_weights is not None):
            raise ValueError(f"the card says query_encoder {encoder.card.query_encoder}; weights are for idf alone")
        self._settings, self._data, self._group = settings, data, group
        self.step, self.steps = 0, total_steps(settings, data.rows)
        check_batch(settings, data.rows, group.world)
        prepare_encoder(encoder, settings)
        if group.device.type == "cpu":
            use_cpu_attention(encoder.model)
        self._negatives = _slow_negatives(encoder, settings, group)
        self._replica = Replica(encoder, settings.scale.strategy, group)
        self.encoder = encoder.train()
        self._updates = Updates(encoder.model, settings.optimizer)
        self._loss = TrainingLoss(settings.objective, vocabulary=encoder.vocabulary, steps=self.steps)
        self.dead_terms = DeadTerms(encoder.card.vocabulary_size, window=DEAD_AFTER, device=group.device)
        lengths = data.lengths if settings.batch.group_by_length else None
        self._order = BatchOrder(data.rows, settings.batch.queries, settings.seed, lengths)
        autocast = torch.bfloat16 if settings.scale.precision == "bf16" else None
        weights = None if query_weights is None else query_weights.to(group.device)
        self._plan = StepPlan(group, settings.batch.chunk, autocast, settings.seed, weights)

    def train_step(self) -> StepResult:
        """Do the next step."""
        rate = self._updates.begin(self.step, self.steps)
        parts = self._parts()
        encoded = backward(
            self._replica, self._loss, parts, step=self.step, plan=self._plan, negatives=self._extra()
        )  # fmt: skip
        norm = self._updates.apply()
        self._observe(parts, encoded)
        self.step += 1
        tokens = sum(int(part.queries.attention_mask.sum() + part.documents.attention_mask.sum()) for part in parts)
        return StepResult(_mean_losses(encoded), norm, rate, encoded, tokens)

    def _parts(self) -> list[TrainBatch]:
        """This worker's rows of each part of the step."""
        batch = self._settings.batch
        pad = self.encoder.model.config.pad_token_id or 0
        rows, count = self._order.rows_of(self.step), batch.accumulate
        # Rows of a batch rise in length: dealt out in turns, every part and every worker gets its share of long ones.
        shares = [rows[part::count][self._group.rank :: self._group.world] for part in range(count)]
        return [
            make_batch(
                self._data.examples(share), share, negatives=batch.negatives, seed=self._settings.seed,
                step=self.step, pad_id=pad,
            )
            for share in shares
        ]  # fmt: skip

    def _extra(self) -> KeptTerms | None:
        return None if self._negatives is None else self._negatives.documents()

    def _observe(self, parts: list[TrainBatch], encoded: list[Encoded]) -> None:
        for one in encoded:
            self._loss.observe(one.documents, self.step)
            self.dead_terms.observe(one.documents, self.step)
        if self._negatives is not None:
            for part in parts:
                self._negatives.push(part)
            self._negatives.follow(self.encoder)

    def figures(self) -> dict[str, float | None]:
        """What is known of all steps so far; every worker has to call it."""
        return {"dead_terms": self.dead_terms.count(self.step - 1)}

    @property
    def sharded(self) -> bool:
        """Whether each worker holds a part of the weights only."""
        return self._replica.sharded

    def weights(self, keep: bool) -> dict[str, Tensor]:
        """The trained parameters, whole and on the CPU; every worker has to ask at the same time.

        Args:
            keep: whether this worker wants them; the others get none.
        """
        return self._updates.weights(keep)

    def tensors(self, keep: bool) -> dict[str, dict[str, Tensor]]:
        """All that a checkpoint keeps, by part; every worker has to ask at the same time.

        Args:
            keep: whether this worker wants them; the others get empty parts.
        """
        parts: dict[str, Any] = {
            "weights": self.weights(keep).items(),
            "optimizer": self._updates.state(),
            "loss": self._loss.state().items(),
            "dead_terms": self.dead_terms.state().items(),
            "negatives": () if self._negatives is None else self._negatives.tensors(),
        }
        return {part: {name: value for name, value in tensors if keep} for part, tensors in parts.items()}

    @torch.no_grad()
    def load(self, step: int, tensors: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Go on from what ``tensors`` gave after ``step`` steps."""
        self.step = step
        self._updates.load(tensors["weights"], tensors["optimizer"])
        self._loss.load_state(dict(tensors["loss"]))
        self.dead_terms.load_state(tensors["dead_terms"])
        if self._negatives is not None:
            self._negatives.load(tensors["negatives"])


def total_steps(settings: FinetuneSettings, rows: int) -> int:
    """Steps of the stage over a training set of ``rows`` rows."""
    if settings.steps is not None:
        return settings.steps
    assert settings.epochs is not None
    return max(1, round(settings.epochs * (rows // settings.batch.queries)))


def check_batch(settings: FinetuneSettings, rows: int, workers: int) -> None:
    """Refuse a batch that the data or the workers cannot fill.

    Raises:
        ConfigError: see its text.
    """
    queries, part = settings.batch.queries, settings.batch.queries // settings.batch.accumulate
    if rows < queries:
        raise ConfigError("train.stages.batch.queries", f"{queries} is more than the {rows} rows of data", "lower it")
    if part < workers:
        raise ConfigError("train.workers", f"{workers} cannot share {part} queries", "give each at least one query")
    if settings.scale.strategy == "fsdp" and part % workers:
        raise ConfigError(
            "train.stages.batch.queries", f"{part} queries do not divide among {workers} workers",
            "fsdp needs equal shares; give a multiple",
        )  # fmt: skip


def prepare_encoder(encoder: SparseEncoder, settings: FinetuneSettings | LanguageSettings) -> None:
    """Set dropout, add low-rank updates and turn on checkpointing, as the stage asks."""
    seed_torch(settings.seed)  # low-rank updates start at random, and equal on every worker
    if settings.dropout is not None:
        set_dropout(encoder.model, settings.dropout)
    if settings.scale.lora is not None:
        add_lora(encoder.model, settings.scale.lora)
    if settings.scale.gradient_checkpointing:
        recompute_layers(encoder.model, kept=settings.scale.kept_layers)


def set_dropout(model: nn.Module, rate: float) -> None:
    """Set every dropout of a model; some attentions keep theirs as a plain number."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = rate
        if isinstance(getattr(module, "attention_dropout", None), float):
            setattr(module, "attention_dropout", rate)  # noqa: B010


def _slow_negatives(encoder: SparseEncoder, settings: FinetuneSettings, group: Group) -> SlowNegatives | None:
    queue = settings.objective.queue
    return None if queue is None else SlowNegatives(encoder, queue, group)


def _mean_losses(encoded: list[Encoded]) -> dict[str, float]:
    return {
        name: sum(float(one.terms.parts[name]) for one in encoded) / len(encoded) for name in encoded[0].terms.parts
    }
