"""Retrieval training of one worker: a step from batch to updated weights, and the tensors of a checkpoint.

The gradient of a step is computed at once, part by part (``accumulate``), or with the gradient cache (``chunk``; arXiv
2101.06983), which needs the memory of one chunk of texts: all texts are encoded without graph, the loss gives the
gradient of their vectors, then each chunk is encoded again and back-propagates its share. Both passes of a chunk use
the same random numbers, and the product with the output matrix is computed in the first pass only.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from lsr_prod.config.query_weights import QueryWeightsSettings
from lsr_prod.config.train import FinetuneSettings
from lsr_prod.model import SparseEncoder
from lsr_prod.model.pooled_head import PooledArgmax
from lsr_prod.training.batches import TokenBatch, TrainBatch, make_batch, spread
from lsr_prod.training.data_sets import DataSets
from lsr_prod.training.encoder_setup.attention import use_cpu_attention
from lsr_prod.training.encoder_setup.dropout import use_cpu_dropout
from lsr_prod.training.encoder_setup.prepare import prepare_encoder
from lsr_prod.training.encoder_setup.sides import models_of, trained_module
from lsr_prod.training.losses.chance import chance_level
from lsr_prod.training.objective import LossTerms, TrainingObjective
from lsr_prod.training.observers.activity import DeadTerms
from lsr_prod.training.optimizer import QUERY_WEIGHTS, OptimizerStep
from lsr_prod.training.parallel.free_memory import return_free_memory
from lsr_prod.training.parallel.process_group import Group
from lsr_prod.training.parallel.replica import Replica
from lsr_prod.training.query_table import QueryTable
from lsr_prod.training.query_weights import weigh_queries
from lsr_prod.training.retrieval.momentum_queue import MomentumQueue, QueuedDocuments
from lsr_prod.training.retrieval.step_result import EncodedPart, StepResult
from lsr_prod.training.retrieval.steps import check_batch, total_steps
from lsr_prod.training.rng import seed_torch
from lsr_prod.training_data.sample_rows import SampleRows
from lsr_prod.training_data.training_set import TrainingSet

__all__ = ["DEAD_AFTER", "StepPlan", "Trainer", "backward"]

DEAD_AFTER = 500
"""Steps without activation after which a term counts as dead."""


@dataclass(frozen=True, slots=True)
class StepPlan:
    """Settings for computing the gradient of a step.

    Attributes:
        group: this process among the workers.
        chunk: texts per forward pass of the gradient cache; None: all texts of a part at once.
        autocast: dtype of matrix products; None: dtype of the weights.
        seed: seed of dropout.
        query_weights: returns float32 [V] for inference-free queries, given as output terms; with a graph if they are
            learned. None: a model encodes queries.
        return_memory: give free memory back to the system before the backward pass and after the step.
        queries: the separate query encoder; None: one model encodes queries and documents.
    """

    group: Group
    chunk: int | None
    autocast: torch.dtype | None
    seed: int
    query_weights: Callable[[], Tensor] | None = None
    return_memory: bool = False
    queries: Replica | None = None


class Trainer:
    """Trainer of a fine-tuning stage on one worker.

    Attributes:
        step: completed steps.
        steps: steps of the stage.
        encoder: the module; its parameters are shards under FSDP2.
    """

    def __init__(
        self,
        encoder: SparseEncoder,
        data: TrainingSet | SampleRows | Sequence[TrainingSet | SampleRows],
        settings: FinetuneSettings,
        group: Group,
        *,
        query_weights: Tensor | None = None,
    ) -> None:
        """Start at step 0.

        Args:
            encoder: whole, and equal on every worker.
            data: the training set, or one per data set of the stage; with ``query_weights``, queries are output terms.
            settings: the stage.
            group: this process among the workers.
            query_weights: float32 [V], term weights of inference-free queries, at the first step if they are learned;
                None: the model encodes queries.

        Raises:
            ConfigError: the data or the workers cannot fill the batch.
        """
        if encoder.card.inference_free != (query_weights is not None):
            raise ValueError(f"the card says query_encoder {encoder.card.query_encoder}; weights are not for model")
        self._settings, self._group = settings, group
        sets = list(data) if isinstance(data, Sequence) else [data]
        self.step, self.steps = 0, total_steps(settings, *(one.rows for one in sets))
        for one in sets:
            check_batch(settings, one.rows, group.world)
        self._data = DataSets(sets, settings)
        prepare_encoder(encoder, settings)
        if group.device.type == "cpu":
            for model in models_of(encoder):
                use_cpu_attention(model)
                use_cpu_dropout(model)
        queue = settings.objective.queue
        documents = encoder.document_encoder()
        self._negatives = None if queue is None else MomentumQueue(documents, queue, group)
        asked = None if encoder.queries is None else Replica(encoder.queries, settings.scale.strategy, group)
        self._replica = Replica(documents, settings.scale.strategy, group)
        self.encoder = encoder.train()
        self._optimizer = OptimizerStep(trained_module(encoder), settings.optimizer)
        self._objective = TrainingObjective(settings.objective, vocabulary=encoder.vocabulary, steps=self.steps)
        self.dead_terms = DeadTerms(encoder.card.vocabulary_size, window=DEAD_AFTER, device=group.device)
        autocast = torch.bfloat16 if settings.scale.precision == "bf16" else None
        weights = None if query_weights is None else query_weights.to(group.device)
        self._table: QueryTable | None = None
        if weights is not None and encoder.card.query_encoder == "learned":
            factor = (settings.query_weights or QueryWeightsSettings()).learning_rate_factor
            self._table = QueryTable(weights, settings.optimizer, factor=factor)
        fixed = None if weights is None else partial(_same, weights)
        of_queries = fixed if self._table is None else self._table.weights
        # Pages that return cost time: only where the settings prefer memory to time.
        lean = group.device.type == "cpu" and settings.scale.gradient_checkpointing
        self._plan = StepPlan(group, settings.batch.chunk, autocast, settings.seed, of_queries, lean, asked)
        self._queue_documents = 0  # of the last step

    def train_step(self) -> StepResult:
        """Run the next step: batch, forward and backward pass, optimizer, observation."""
        rate = self._optimizer.begin(self.step, self.steps)
        parts = self._parts()
        queue = None if self._negatives is None else self._negatives.documents()
        self._queue_documents = 0 if queue is None else len(queue.keys)
        encoded = backward(self._replica, self._objective, parts, step=self.step, plan=self._plan, negatives=queue)
        norm = self._optimizer.apply()
        if self._table is not None:
            norm = torch.hypot(norm, self._table.apply(rate))
        if self._plan.return_memory:
            return_free_memory()
        self._observe(parts, encoded)
        self.step += 1
        tokens = sum(int(part.queries.attention_mask.sum() + part.documents.attention_mask.sum()) for part in parts)
        return StepResult.of(encoded, norm, rate, tokens)

    def _parts(self) -> list[TrainBatch]:
        """Return this worker's batch of each part of the step."""
        batch = self._settings.batch
        pad = self.encoder.model.config.pad_token_id or 0
        masked = self._settings.objective.mask_false_negatives
        return [
            make_batch(
                examples, rows, negatives=batch.negatives, seed=self._settings.seed, step=self.step, pad_id=pad,
                known_positives=known if masked else None,
            )
            for examples, rows, known in self._data.worker_rows(self.step, batch.accumulate, self._group)
        ]  # fmt: skip

    def _observe(self, parts: list[TrainBatch], encoded: list[EncodedPart]) -> None:
        for one in encoded:
            self._objective.observe(one.documents, self.step)
            self.dead_terms.observe(one.documents, self.step)
        if self._negatives is not None:
            for part in parts:
                self._negatives.push(part)
            self._negatives.follow(self._replica.encoder)

    def figures(self) -> dict[str, float | None]:
        """Return figures of all steps so far, and the chance level of the last one; a collective operation."""
        batch = self._settings.batch
        chance = chance_level(
            self._settings.objective, queries=batch.queries // batch.accumulate, documents=1 + batch.negatives,
            queue=self._queue_documents, workers=self._group.world,
        )  # fmt: skip
        figures = {"dead_terms": self.dead_terms.count(self.step - 1), "chance": chance}
        return {**figures, **self._data.figures(self.step)}

    @property
    def sharded(self) -> bool:
        """True if each worker holds only a shard of the weights."""
        return self._replica.sharded

    def weights(self, keep: bool) -> dict[str, Tensor]:
        """Return the trained parameters, whole and on the CPU; a collective operation of all workers.

        Args:
            keep: return them on this worker; the others get none.
        """
        weights = self._optimizer.weights(keep)
        if keep and self._table is not None:
            weights[QUERY_WEIGHTS] = self._table.weights().detach().cpu()
        return weights

    def tensors(self, keep: bool) -> dict[str, dict[str, Tensor]]:
        """Return the tensors of a checkpoint by part; a collective operation of all workers.

        Args:
            keep: return them on this worker; the others get empty parts.
        """
        parts: dict[str, Any] = {
            "weights": self.weights(keep).items(),
            "optimizer": self._optimizer.state(),
            "loss": self._objective.state().items(),
            "dead_terms": self.dead_terms.state().items(),
            "negatives": () if self._negatives is None else self._negatives.tensors(),
            **({} if self._table is None else {"query_table": self._table.state().items()}),
        }
        return {part: {name: value for name, value in tensors if keep} for part, tensors in parts.items()}

    @torch.no_grad()
    def load(self, step: int, tensors: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Restore the tensors of a checkpoint of ``step`` steps."""
        self.step = step
        self._optimizer.load(tensors["weights"], tensors["optimizer"])
        self._objective.load_state(dict(tensors["loss"]))
        self.dead_terms.load_state(tensors["dead_terms"])
        if self._negatives is not None:
            self._negatives.load(tensors["negatives"])
        if self._table is not None:
            self._table.load_state(tensors["query_table"])


def backward(
    replica: Replica,
    objective: TrainingObjective,
    parts: Sequence[TrainBatch],
    *,
    step: int,
    plan: StepPlan,
    negatives: QueuedDocuments | None,
) -> list[EncodedPart]:
    """Add the gradient of a step to the parameters' ``grad``.

    Args:
        replica: the model.
        objective: the loss to minimize.
        parts: this worker's batch of each part of the step; the losses of parts are averaged.
        step: number of the step.
        plan: settings of the computation.
        negatives: further documents, equal on all workers; None: no queue.

    Returns:
        The encoded vectors by part.
    """
    one = _whole if plan.chunk is None else _cached
    return [
        one(replica, objective, part, negatives, (step, number, len(parts)), plan)
        for number, part in enumerate(parts)
    ]  # fmt: skip


Position = tuple[int, int, int]


def _whole(
    replica: Replica,
    objective: TrainingObjective,
    part: TrainBatch,
    queued: QueuedDocuments | None,
    position: Position,
    plan: StepPlan,
) -> EncodedPart:
    step, number, parts = position
    _seed(plan, step, number, 0)
    last = number == parts - 1
    with replica.synchronized(last), plan.queries.synchronized(last) if plan.queries else nullcontext():
        with _autocast(plan):
            queries, documents = _encode(replica, part, plan)
        terms = _loss(objective, queries, spread(documents, part.present), part, queued, step, plan)
        if plan.return_memory:
            return_free_memory()
        torch.autograd.backward(
            terms.total * (plan.group.world / parts)
        )  # gradients of workers are averaged, not added
    return EncodedPart(queries.detach(), documents.detach(), terms)


def _encode(replica: Replica, part: TrainBatch, plan: StepPlan) -> tuple[Tensor, ...]:
    """Return queries [n, V] and the documents that are present [m, V]."""
    device = plan.group.device
    if plan.query_weights is not None:
        return weigh_queries(part.queries, plan.query_weights()), *replica(*part.documents.on(device))
    if plan.queries is not None:
        return *plan.queries(*part.queries.on(device)), *replica(*part.documents.on(device))
    return replica(*part.queries.on(device), *part.documents.on(device))


def _cached(
    replica: Replica,
    objective: TrainingObjective,
    part: TrainBatch,
    queued: QueuedDocuments | None,
    position: Position,
    plan: StepPlan,
) -> EncodedPart:
    assert plan.chunk is not None
    step, number, parts = position
    fixed = None if plan.query_weights is None else weigh_queries(part.queries, plan.query_weights())
    of_queries = part.queries.split(plan.chunk) if fixed is None else []
    chunks = [*of_queries, *part.documents.split(plan.chunk)]
    real = len(chunks)
    chunks += chunks[:1] * _idle_passes(replica, part, plan.chunk)
    rows = part.queries.input_ids.shape[0] if fixed is None else 0
    owners = [plan.queries or replica] * len(of_queries) + [replica] * (len(chunks) - len(of_queries))
    found = [
        _find(owner, chunk, (*position[:2], index), plan)
        for index, (owner, chunk) in enumerate(zip(owners, chunks, strict=True))
    ]
    vectors = torch.cat([owner.encoder.fold(one.weights) for owner, one in zip(owners, found[:real], strict=False)])
    queries = vectors[:rows].requires_grad_() if fixed is None else fixed
    documents = vectors[rows:].requires_grad_()
    terms = _loss(objective, queries, spread(documents, part.present), part, queued, step, plan)
    # The gradients of workers are averaged, not added.
    torch.autograd.backward(terms.total * (plan.group.world / parts))
    gradients = [*(_rows(queries, plan.chunk) if fixed is None else ()), *_rows(documents, plan.chunk)]
    gradients += [torch.zeros_like(gradients[0])] * (len(chunks) - real)
    for index, (owner, chunk, gradient) in enumerate(zip(owners, chunks, gradients, strict=True)):
        if owner.frozen:
            continue
        with owner.synchronized(last=number == parts - 1 and owner not in owners[index + 1 :]):
            _seed(plan, *position[:2], index)
            with _autocast(plan):
                encoded = owner(*chunk.on(plan.group.device), found=found[index])[0]
            torch.autograd.backward(encoded, gradient)
    return EncodedPart(queries.detach(), documents.detach(), terms)


def _idle_passes(replica: Replica, part: TrainBatch, chunk: int) -> int:
    """Return the passes that replace those of missing hard negatives: workers with shards need equally many."""
    if part.present is None or not replica.sharded:
        return 0
    return -(-part.present.numel() // chunk) - -(-len(part.documents.input_ids) // chunk)


def _loss(
    objective: TrainingObjective,
    queries: Tensor,
    documents: Tensor,
    part: TrainBatch,
    queued: QueuedDocuments | None,
    step: int,
    plan: StepPlan,
) -> LossTerms:
    device = plan.group.device
    teacher, present = (
        None if one is None else one.to(device, non_blocking=True) for one in (part.scores, part.present)
    )
    return objective(
        queries,
        documents,
        teacher=teacher,
        present=present,
        step=step,
        extra_documents=None if queued is None else queued.vectors,
        keys=None if part.keys is None else part.keys.on(device),
        extra_keys=None if queued is None else queued.keys,
    )


def _find(replica: Replica, chunk: TokenBatch, position: Position, plan: StepPlan) -> PooledArgmax:
    """Run the first pass: vectors, and the tokens that receive the gradient in the second pass."""
    _seed(plan, *position)
    with torch.no_grad(), _autocast(plan):
        return replica.find_argmax(*chunk.on(plan.group.device))


def _same(weights: Tensor) -> Tensor:
    return weights


def _seed(plan: StepPlan, step: int, number: int, index: int) -> None:
    seed_torch(plan.seed, step, plan.group.rank, number, index)


def _rows(leaf: Tensor, chunk: int) -> tuple[Tensor, ...]:
    assert leaf.grad is not None
    return torch.split(leaf.grad, chunk)


def _autocast(plan: StepPlan) -> torch.autocast:
    enabled = plan.autocast is not None
    return torch.autocast(plan.group.device.type, dtype=plan.autocast or torch.bfloat16, enabled=enabled)
