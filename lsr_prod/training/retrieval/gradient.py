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
from lsr_prod.training.parallel.free_memory import return_free_memory
from lsr_prod.training.parallel.process_group import Group
from lsr_prod.training.parallel.replica import Replica
from lsr_prod.training.query_weights import weigh_queries
from lsr_prod.training.retrieval.momentum_queue import QueuedDocuments
from lsr_prod.training.retrieval.step_result import EncodedPart
from lsr_prod.training.rng import seed_torch


@dataclass(frozen=True, slots=True)
class StepPlan:
    """Settings for computing the gradient of a step."""

    group: Group  # this process among the workers
    chunk: int | None  # texts per forward pass of the gradient cache; None: all texts of a part at once
    autocast: torch.dtype | None  # dtype of matrix products; None: dtype of the weights
    seed: int  # seed of dropout
    # returns float32 [V] for inference-free queries, given as output terms; with a graph if they are learned. None: a
    # model encodes queries
    query_weights: Callable[[], Tensor] | None = None
    return_memory: bool = False  # give free memory back to the system before the backward pass and after the step
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
            if plan.return_memory:
                return_free_memory()
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
        dtype = self.plan.autocast
        return torch.autocast(self.plan.group.device.type, dtype=dtype or torch.bfloat16, enabled=dtype is not None)


def _rows(leaf: Tensor, chunk: int) -> tuple[Tensor, ...]:
    assert leaf.grad is not None
    return torch.split(leaf.grad, chunk)
