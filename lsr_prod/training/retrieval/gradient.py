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


def _seed(plan: StepPlan, step: int, number: int, index: int) -> None:
    seed_torch(plan.seed, step, plan.group.rank, number, index)


def _rows(leaf: Tensor, chunk: int) -> tuple[Tensor, ...]:
    assert leaf.grad is not None
    return torch.split(leaf.grad, chunk)


def _autocast(plan: StepPlan) -> torch.autocast:
    enabled = plan.autocast is not None
    return torch.autocast(plan.group.device.type, dtype=plan.autocast or torch.bfloat16, enabled=enabled)
