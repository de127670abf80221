"""Gradient of a retrieval step, by the forward and backward passes of one worker, and its momentum queue.

The gradient of a step is computed at once, part by part (``accumulate``), or with the gradient cache (``chunk``; arXiv
2101.06983), which needs the memory of one chunk of texts: all texts are encoded without graph, the loss gives the
gradient of their vectors, then each chunk is encoded again and back-propagates its share. Both passes of a chunk use
the same random numbers, and the product with the output matrix is computed in the first pass only.

The momentum queue (MoCo) has documents of earlier steps as negatives, encoded by a moving average of the model (He et
al., arXiv 1911.05722; for sparse vectors papers/esplade-pretraining, appendix J.4.2).
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from lsr_prod.config.objective import QueueSettings
from lsr_prod.model import SparseEncoder, pooled_head
from lsr_prod.training import batches, twins
from lsr_prod.training.kept_terms import KeptTerms, heaviest_terms
from lsr_prod.training.objective import LossTerms, TrainingObjective
from lsr_prod.training.observers import activity, throughput
from lsr_prod.training.process_group import Group, all_rows
from lsr_prod.training.query_weights import weigh_queries
from lsr_prod.training.replica import Replica


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
        return activity.measure_activity(*self.vectors())

    def count(self, meter: throughput.ThroughputMeter) -> None:
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


@dataclass(frozen=True, slots=True)
class QueuedDocuments:
    """Documents of the queue."""

    vectors: KeptTerms  # k documents
    keys: Tensor  # int64 [k], their keys


def backward(
    replica: Replica,
    objective: TrainingObjective,
    parts: Sequence[batches.TrainBatch],
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
    batch: batches.TrainBatch
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

    def _find(self, replica: Replica, chunk: batches.TokenBatch, index: int) -> pooled_head.PooledArgmax:
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
            batches.spread(documents, batch.present),
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
        twins.seed_torch(self.plan.seed, self.step, self.plan.group.rank, self.number, index)

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.plan.group.device.type, dtype=torch.bfloat16, enabled=self.plan.bf16)


def _rows(leaf: Tensor, chunk: int) -> tuple[Tensor, ...]:
    assert leaf.grad is not None
    return torch.split(leaf.grad, chunk)


class MomentumQueue:
    """A queue of negatives and the moving average of the model that encodes them; equal on every worker."""

    def __init__(self, encoder: SparseEncoder, settings: QueueSettings, group: Group) -> None:
        self._momentum = settings.momentum
        self._average = copy.deepcopy(encoder).to(group.device).eval().requires_grad_(False)
        self._queue = NegativeQueue(settings.size, settings.terms, encoder.card.vocabulary_size)
        self._device = group.device

    def documents(self) -> QueuedDocuments | None:
        """Return the documents of the queue; None while it is empty."""
        return QueuedDocuments(self._queue.kept(), self._queue.keys()) if len(self._queue) else None

    @torch.no_grad()
    def push(self, part: batches.TrainBatch) -> None:
        """Encode the documents of a part with the moving average; enqueue those of all workers."""
        ids, mask = part.documents.input_ids.to(self._device), part.documents.attention_mask.to(self._device)
        # Without keys false negatives are not masked, and the keys of the queue are not read.
        keys = torch.zeros(len(ids), dtype=torch.int64)
        if part.keys is not None:
            keys = part.keys.documents if part.present is None else part.keys.documents[part.present.flatten()]
        self._queue.push(all_rows(self._average(ids, mask)), all_rows(keys.to(self._device)))

    @torch.no_grad()
    def follow(self, encoder: SparseEncoder) -> None:
        """Update the moving average after an optimizer step."""
        average: list[Tensor] = [p for p in self._average.parameters() if p.is_floating_point()]
        current: list[Tensor] = [p.detach() for p in encoder.parameters() if p.is_floating_point()]
        torch._foreach_lerp_(average, current, 1 - self._momentum)

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the tensors of a checkpoint."""
        for name, value in self._queue.state().items():
            yield f"queue.{name}", value
        for name, parameter in self._average.model.named_parameters():
            yield f"slow.{name}", parameter.detach().cpu()

    @torch.no_grad()
    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the tensors of a checkpoint."""
        names = [name for name in tensors if name.startswith("queue.")]
        self._queue.load_state({name.removeprefix("queue."): tensors[name] for name in names})
        for name, parameter in self._average.model.named_parameters():
            parameter.copy_(tensors[f"slow.{name}"])


class NegativeQueue:
    """Ring buffer of the newest documents, each with its heaviest terms and its key."""

    def __init__(self, size: int, terms: int, vocabulary_size: int) -> None:
        terms = min(terms, vocabulary_size)
        self._vocabulary_size = vocabulary_size
        self._terms = torch.zeros(size, terms, dtype=torch.int32)
        self._weights = torch.zeros(size, terms)
        self._keys = torch.zeros(size, dtype=torch.int64)
        self._filled = self._next = 0

    def __len__(self) -> int:
        """Return the number of documents in the queue."""
        return self._filled

    @torch.no_grad()
    def push(self, documents: Tensor, keys: Tensor) -> None:
        """Add documents; beyond ``size``, each replaces the oldest."""
        size, kept = self._terms.shape
        terms, weights = heaviest_terms(documents[-size:].float(), kept)
        device = documents.device
        self._terms, self._weights = self._terms.to(device), self._weights.to(device)
        self._keys = self._keys.to(device)
        places = (self._next + torch.arange(len(terms), device=device)) % size
        self._terms[places], self._weights[places] = terms.to(torch.int32), weights
        self._keys[places] = keys[-size:]
        self._next = (self._next + len(terms)) % size
        self._filled = min(size, self._filled + len(terms))

    def kept(self) -> KeptTerms:
        """Return the k documents as kept terms, without gradient; k is 0 at first."""
        return KeptTerms(self._terms[: self._filled].long(), self._weights[: self._filled], self._vocabulary_size)

    def keys(self) -> Tensor:
        """Return the keys of the documents, int64 [k]."""
        return self._keys[: self._filled]

    def state(self) -> dict[str, Tensor]:
        """Return the tensors of a checkpoint, copied to the CPU."""
        tensors = {"terms": self._terms, "weights": self._weights, "keys": self._keys}
        position = torch.tensor([self._filled, self._next])
        return {name: value.cpu().clone() for name, value in tensors.items()} | {"position": position}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Restore ``state()`` of a queue of the same size, bit for bit."""
        self._terms, self._weights = state["terms"].clone(), state["weights"].clone()
        self._keys = state["keys"].clone()
        self._filled, self._next = (int(number) for number in state["position"])
