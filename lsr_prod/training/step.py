"""One step: the gradient of the global batch's loss, at once, in parts, or by the gradient cache.

The gradient cache (arXiv 2101.06983) needs the memory of one chunk of texts: all texts are encoded without a graph, the
loss gives the gradient of their vectors, then each chunk is encoded again and that gradient goes through it. The random
numbers of a chunk are the same both times, and the product with the output matrix is made the first time only.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lsr_prod.model.pooled_head import Maxima
from lsr_prod.training.batches import TokenBatch, TrainBatch
from lsr_prod.training.kept_terms import KeptTerms
from lsr_prod.training.loss import LossTerms, TrainingLoss
from lsr_prod.training.parallel import Replica
from lsr_prod.training.process_group import Group
from lsr_prod.training.query_weights import weigh_queries
from lsr_prod.training.randomness import seed_torch

__all__ = ["Encoded", "StepPlan", "backward"]


@dataclass(frozen=True, slots=True)
class StepPlan:
    """How the gradient of a step is computed.

    Attributes:
        group: this process among the workers.
        chunk: texts of one forward pass; None: all of a part.
        autocast: number format of matrix products, or None for that of the weights.
        seed: of dropout.
        query_weights: float32 [V]; queries are output terms and have no model. None: the model encodes them.
    """

    group: Group
    chunk: int | None
    autocast: torch.dtype | None
    seed: int
    query_weights: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Encoded:
    """The vectors of one part of a step, without graph, for what is observed of them.

    Attributes:
        queries: [n, V].
        documents: [n * c, V].
        terms: the loss.
    """

    queries: Tensor
    documents: Tensor
    terms: LossTerms


def backward(
    replica: Replica,
    loss: TrainingLoss,
    parts: Sequence[TrainBatch],
    *,
    step: int,
    plan: StepPlan,
    negatives: KeptTerms | None,
) -> list[Encoded]:
    """Add the gradient of step ``step`` to the parameters' ``grad``.

    Args:
        replica: the model.
        loss: what is minimised.
        parts: this worker's rows of each part of the step; their losses are averaged.
        step: its number.
        plan: how it is computed.
        negatives: further documents, the same on all workers, or None.

    Returns:
        What was encoded, a part after the other.
    """
    one = _whole if plan.chunk is None else _cached
    return [
        one(replica, loss, part, negatives, (step, number, len(parts)), plan)
        for number, part in enumerate(parts)
    ]  # fmt: skip


Position = tuple[int, int, int]


def _whole(
    replica: Replica, loss: TrainingLoss, part: TrainBatch, extra: KeptTerms | None, position: Position, plan: StepPlan
) -> Encoded:
    step, number, parts = position
    _seed(plan, step, number, 0)
    with replica.synchronised(last=number == parts - 1):
        with _autocast(plan):
            if plan.query_weights is None:
                queries, documents = replica(*_on(plan, part.queries), *_on(plan, part.documents))
            else:
                queries = weigh_queries(part.queries, plan.query_weights)
                (documents,) = replica(*_on(plan, part.documents))
        terms = loss(queries, documents, teacher=_teacher(part, plan), step=step, extra_documents=extra)
        _go_back(terms.total * (plan.group.world / parts))  # the workers' gradients are averaged, not added
    return Encoded(queries.detach(), documents.detach(), terms)


def _cached(
    replica: Replica, loss: TrainingLoss, part: TrainBatch, extra: KeptTerms | None, position: Position, plan: StepPlan
) -> Encoded:
    assert plan.chunk is not None
    step, number, parts = position
    fixed = None if plan.query_weights is None else weigh_queries(part.queries, plan.query_weights)
    chunks = [*(_chunks(part.queries, plan.chunk) if fixed is None else ()), *_chunks(part.documents, plan.chunk)]
    found = [_find(replica, chunk, (*position[:2], index), plan) for index, chunk in enumerate(chunks)]
    vectors = torch.cat([replica.encoder.fold(one.weights) for one in found])
    rows = part.queries.input_ids.shape[0] if fixed is None else 0
    queries = vectors[:rows].requires_grad_() if fixed is None else fixed
    documents = vectors[rows:].requires_grad_()
    terms = loss(queries, documents, teacher=_teacher(part, plan), step=step, extra_documents=extra)
    _go_back(terms.total * (plan.group.world / parts))  # the workers' gradients are averaged, not added
    gradients = [*(_rows(queries, plan.chunk) if fixed is None else ()), *_rows(documents, plan.chunk)]
    for index, (chunk, gradient) in enumerate(zip(chunks, gradients, strict=True)):
        with replica.synchronised(last=number == parts - 1 and index == len(chunks) - 1):
            _seed(plan, *position[:2], index)
            with _autocast(plan):
                encoded = replica(*_on(plan, chunk), found=found[index])[0]
            _go_back(encoded, gradient)
    return Encoded(queries.detach(), documents.detach(), terms)


def _find(replica: Replica, chunk: TokenBatch, position: Position, plan: StepPlan) -> Maxima:
    """The first pass: vectors, and the tokens that the second pass sends the gradient to."""
    _seed(plan, *position)
    with torch.no_grad(), _autocast(plan):
        return replica.find_maxima(*_on(plan, chunk))


def _seed(plan: StepPlan, step: int, number: int, index: int) -> None:
    seed_torch(plan.seed, step, plan.group.rank, number, index)


def _rows(leaf: Tensor, chunk: int) -> tuple[Tensor, ...]:
    assert leaf.grad is not None
    return torch.split(leaf.grad, chunk)


def _go_back(value: Tensor, gradient: Tensor | None = None) -> None:
    torch.autograd.backward(value, gradient)


def _chunks(batch: TokenBatch, size: int) -> list[TokenBatch]:
    """Pieces of ``size`` texts, each as wide as its longest."""
    pieces = zip(torch.split(batch.input_ids, size), torch.split(batch.attention_mask, size), strict=True)
    return [_trimmed(ids, mask) for ids, mask in pieces]


def _trimmed(ids: Tensor, mask: Tensor) -> TokenBatch:
    width = max(1, int(mask.sum(dim=1).max()))
    return TokenBatch(ids[:, :width], mask[:, :width])


def _on(plan: StepPlan, batch: TokenBatch) -> tuple[Tensor, Tensor]:
    device = plan.group.device
    return batch.input_ids.to(device, non_blocking=True), batch.attention_mask.to(device, non_blocking=True)


def _teacher(part: TrainBatch, plan: StepPlan) -> Tensor | None:
    return None if part.scores is None else part.scores.to(plan.group.device)


def _autocast(plan: StepPlan) -> torch.autocast:
    enabled = plan.autocast is not None
    return torch.autocast(plan.group.device.type, dtype=plan.autocast or torch.bfloat16, enabled=enabled)
