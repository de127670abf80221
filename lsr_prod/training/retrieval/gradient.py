"""Gradient of a retrieval step: the forward and backward passes of one worker.

The gradient of a step is computed at once, part by part (``accumulate``), or with the gradient cache (``chunk``; arXiv
2101.06983), which needs the memory of one chunk of texts: all texts are encoded without graph, the loss gives the
gradient of their vectors, then each chunk is encoded again and back-propagates its share. Both passes of a chunk use
the same random numbers, and the product with the output matrix is computed in the first pass only.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from lsr_prod.model.pooled_head import PooledArgmax
from lsr_prod.training.batches import TokenBatch, TrainBatch, spread
from lsr_prod.training.objective import LossTerms, TrainingObjective
from lsr_prod.training.observers.activity import measure_activity
from lsr_prod.training.observers.throughput import ThroughputMeter
from lsr_prod.training.process_group import Group
from lsr_prod.training.query_weights import weigh_queries
from lsr_prod.training.replica import Replica
from lsr_prod.training.retrieval.momentum_queue import QueuedDocuments
from lsr_prod.training.twins import seed_torch


@dataclass(frozen=True, slots=True)
class EncodedPart:
    """Vectors of one part of a step, without graph."""

    queries: Tensor  # [n, V]
    documents: Tensor  # [n * c, V]
    terms: LossTerms  # the loss


@dataclass(frozen=True, slots=True)
class StepResult:
    """Result of one step."""

    scalars: Tensor  # the values of ``losses`` and ``grad_norm`` on the device of the step, which reads none of them
    names: tuple[str, ...]  # names of the losses, in the order of ``scalars``
    learning_rate: float  # learning rate of this step
    encoded: list[EncodedPart]  # vectors of this worker, by part
    tokens: int  # tokens of this worker's texts, padding excluded

    @classmethod
    def of(cls, encoded: list[EncodedPart], norm: Tensor, learning_rate: float, tokens: int) -> "StepResult":
        """Return the result of a step whose gradients had a norm of ``norm`` before clipping."""
        names = tuple(encoded[0].terms.parts)
        losses = torch.stack([torch.stack([one.terms.parts[name] for name in names]) for one in encoded])
        scalars = torch.cat([losses.double().mean(dim=0), norm.to(losses.device)[None].double()])
        return cls(scalars, names, learning_rate, encoded, tokens)

    @property
    def losses(self) -> dict[str, float]:
        """Terms of the loss of the global batch by name, averaged over the parts of the step; waits for the step."""
        return dict(zip(self.names, self.scalars.tolist(), strict=False))

    @property
    def grad_norm(self) -> float:
        """Norm of all gradients together, before clipping; waits for the step."""
        return float(self.scalars[-1])

    def vectors(self) -> tuple[Tensor, Tensor]:
        """Return this worker's queries [n, V] and documents [n * c, V] of all parts."""
        if len(self.encoded) == 1:  # no copy: they are as wide as the vocabulary
            return self.encoded[0].queries, self.encoded[0].documents
        return torch.cat([one.queries for one in self.encoded]), torch.cat([one.documents for one in self.encoded])

    def figures(self) -> dict[str, float]:
        """Return the sparsity of the global batch's vectors; a collective operation of all workers."""
        return measure_activity(*self.vectors())

    def count(self, meter: ThroughputMeter) -> None:
        """Add the work of this step to the meter."""
        queries, documents = self.vectors()
        active = torch.count_nonzero(queries) + torch.count_nonzero(documents)
        meter.count(documents=len(documents), tokens=self.tokens, active=active)


@dataclass(frozen=True, slots=True)
class StepPlan:
    """Settings for computing the gradient of a step."""

    group: Group  # this process among the workers
    chunk: int | None  # texts per forward pass of the gradient cache; None: all texts of a part at once
    bf16: bool  # matrix products in bf16, under autocast
    seed: int  # seed of dropout
    # returns float32 [V] for inference-free queries, given as output terms; with a graph if they are learned. None: a
    # model encodes queries
    query_weights: Callable[[], Tensor] | None = None
    # gives free memory back to the system, before the backward pass and after the step; None: memory is kept
    return_memory: Callable[[], None] | None = None
    queries: Replica | None = None  # the separate query encoder; None: one model encodes queries and documents


def backward(
    replica: Replica,
    objective: TrainingObjective,
    parts: Sequence[TrainBatch],
    *,
    step: int,
    plan: StepPlan,
    negatives: QueuedDocuments | None,
) -> list[EncodedPart]:
    """Add the gradient of a step to the parameters' ``grad``."""
    passes = [
        _Part(replica, objective, part, step, number, len(parts), plan, negatives) for number, part in enumerate(parts)
    ]
    return [one.whole() if plan.chunk is None else one.cached(plan.chunk) for one in passes]


@dataclass(frozen=True, slots=True)
class _Part:
    """Forward and backward passes of one part of a step."""

    replica: Replica
    objective: TrainingObjective
    batch: TrainBatch
    step: int
    number: int  # of the part, from 0
    parts: int  # of the step
    plan: StepPlan
    queued: QueuedDocuments | None

    def whole(self) -> EncodedPart:
        """Encode all texts at once."""
        plan, last = self.plan, self.number == self.parts - 1
        self._seed(0)
        with self.replica.synchronized(last), plan.queries.synchronized(last) if plan.queries else nullcontext():
            with self._autocast():
                queries, documents = self._encode()
            terms = self._loss(queries, documents)
            if plan.return_memory is not None:
                plan.return_memory()
            self._backward(terms)
        return EncodedPart(queries.detach(), documents.detach(), terms)

    def cached(self, chunk: int) -> EncodedPart:
        """Encode chunks of texts with the gradient cache."""
        plan, batch, replica = self.plan, self.batch, self.replica
        fixed = None if plan.query_weights is None else weigh_queries(batch.queries, plan.query_weights())
        of_queries = batch.queries.split(chunk) if fixed is None else []
        chunks = [*of_queries, *batch.documents.split(chunk)]
        real = len(chunks)
        chunks += chunks[:1] * self._idle_passes(chunk)
        rows = batch.queries.input_ids.shape[0] if fixed is None else 0
        owners = [plan.queries or replica] * len(of_queries) + [replica] * (len(chunks) - len(of_queries))
        found = [self._find(owner, one, index) for index, (owner, one) in enumerate(zip(owners, chunks, strict=True))]
        vectors = torch.cat([owner.encoder.fold(one.weights) for owner, one in zip(owners, found[:real], strict=False)])
        queries = vectors[:rows].requires_grad_() if fixed is None else fixed
        documents = vectors[rows:].requires_grad_()
        terms = self._loss(queries, documents)
        self._backward(terms)
        gradients = [*(_rows(queries, chunk) if fixed is None else ()), *_rows(documents, chunk)]
        gradients += [torch.zeros_like(gradients[0])] * (len(chunks) - real)
        for index, (owner, one, gradient) in enumerate(zip(owners, chunks, gradients, strict=True)):
            if owner.frozen:
                continue
            with owner.synchronized(last=self.number == self.parts - 1 and owner not in owners[index + 1 :]):
                self._seed(index)
                with self._autocast():
                    encoded = owner(*one.on(plan.group.device), found=found[index])[0]
                torch.autograd.backward(encoded, gradient)
        return EncodedPart(queries.detach(), documents.detach(), terms)

    def _encode(self) -> tuple[Tensor, ...]:
        """Return queries [n, V] and the documents that are present [m, V]."""
        plan, batch, device = self.plan, self.batch, self.plan.group.device
        if plan.query_weights is not None:
            return weigh_queries(batch.queries, plan.query_weights()), *self.replica(*batch.documents.on(device))
        if plan.queries is not None:
            return *plan.queries(*batch.queries.on(device)), *self.replica(*batch.documents.on(device))
        return self.replica(*batch.queries.on(device), *batch.documents.on(device))

    def _find(self, replica: Replica, chunk: TokenBatch, index: int) -> PooledArgmax:
        """Run the first pass: vectors, and the tokens that receive the gradient in the second pass."""
        self._seed(index)
        with torch.no_grad(), self._autocast():
            return replica.find_argmax(*chunk.on(self.plan.group.device))

    def _idle_passes(self, chunk: int) -> int:
        """Return the passes that replace those of missing hard negatives: workers with shards need equally many."""
        if self.batch.present is None or not self.replica.sharded:
            return 0
        return -(-self.batch.present.numel() // chunk) - -(-len(self.batch.documents.input_ids) // chunk)

    def _loss(self, queries: Tensor, documents: Tensor) -> LossTerms:
        batch, queued, device = self.batch, self.queued, self.plan.group.device
        teacher, present = (
            None if one is None else one.to(device, non_blocking=True) for one in (batch.scores, batch.present)
        )
        return self.objective(
            queries,
            spread(documents, batch.present),
            teacher=teacher,
            present=present,
            step=self.step,
            extra_documents=None if queued is None else queued.vectors,
            keys=None if batch.keys is None else batch.keys.on(device),
            extra_keys=None if queued is None else queued.keys,
        )

    def _backward(self, terms: LossTerms) -> None:
        # The gradients of workers are averaged, not added.
        torch.autograd.backward(terms.total * (self.plan.group.world / self.parts))

    def _seed(self, index: int) -> None:
        seed_torch(self.plan.seed, self.step, self.plan.group.rank, self.number, index)

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.plan.group.device.type, dtype=torch.bfloat16, enabled=self.plan.bf16)


def _rows(leaf: Tensor, chunk: int) -> tuple[Tensor, ...]:
    assert leaf.grad is not None
    return torch.split(leaf.grad, chunk)
