"""What workers tell each other inside a loss: all rows, and sums over everyone.

Each worker computes the share of the loss that its own queries have. The sum of the shares is the loss of the global
batch, and the sum of their gradients its gradient, whatever the number of workers and however unequal their parts.
Without torch.distributed, or with one worker, everything here is the identity.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

__all__ = ["Shares", "all_rows", "global_sum", "rank", "row_counts", "shares", "world_size"]


@dataclass(frozen=True, slots=True)
class Shares:
    """How a global batch is shared.

    Attributes:
        queries: of every worker, in rank order.
        documents: the same.
    """

    queries: list[int]
    documents: list[int]

    @property
    def documents_of_a_query(self) -> int:
        """c: the positive and the hard negatives of a query; a worker without queries learns it from the others."""
        return sum(self.documents) // max(1, sum(self.queries))


def world_size() -> int:
    """The number of workers; 1 without torch.distributed."""
    return dist.get_world_size() if _distributed() else 1


def rank() -> int:
    """The number of this worker; 0 without torch.distributed."""
    return dist.get_rank() if _distributed() else 0


def row_counts(rows: int, device: torch.device) -> list[int]:
    """How many rows every worker has, in rank order.

    Args:
        rows: of this worker.
        device: where the workers' tensors are.
    """
    return _everyones([rows], device)[0]


def shares(queries: int, documents: int, device: torch.device) -> Shares:
    """How the global batch is shared; one question for all that a step has to know of other workers' rows.

    Args:
        queries: of this worker.
        documents: of this worker.
        device: where the workers' tensors are.
    """
    return Shares(*_everyones([queries, documents], device))


def all_rows(rows: Tensor, counts: Sequence[int] | None = None) -> Tensor:
    """The rows of all workers in rank order.

    Backward gives each worker the sum over all workers of the gradients of its rows.

    Args:
        rows: [B, ...]; B may differ between workers and may be 0.
        counts: every worker's B where they are known; unset: asked for.

    Returns:
        [sum of the Bs, ...], equal on all workers.
    """
    if world_size() == 1:
        return rows
    gathered: Tensor = _AllRows.apply(  # type: ignore[no-untyped-call]
        rows, list(row_counts(len(rows), rows.device) if counts is None else counts)
    )
    return gathered


def global_sum(values: Tensor) -> Tensor:
    """The sum over workers; backward is the identity.

    A term that every worker computes from global sums counts once: each worker holds the gradient of its own share.

    Args:
        values: of the same shape on all workers.

    Returns:
        The same shape, equal on all workers.
    """
    if world_size() == 1:
        return values
    total: Tensor = _GlobalSum.apply(values)  # type: ignore[no-untyped-call]
    return total


def _everyones(numbers: list[int], device: torch.device) -> list[list[int]]:
    """A list of all workers' values for each of one's own numbers."""
    if world_size() == 1:
        return [[number] for number in numbers]
    table = torch.zeros(len(numbers), world_size(), dtype=torch.int64, device=device)
    table[:, rank()] = torch.tensor(numbers, device=device)
    dist.all_reduce(table)
    return [[int(number) for number in row] for row in table.tolist()]


def _distributed() -> bool:
    return dist.is_available() and dist.is_initialized()


class _AllRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, counts: list[int]) -> Tensor:
        ctx.counts = counts
        gathered = rows.new_empty(sum(counts), *rows.shape[1:])
        parts = torch.split(gathered, counts)
        parts[rank()].copy_(rows)
        # One broadcast for each worker: no padding where the counts differ, and as many bytes as an all-gather.
        works = [dist.broadcast(part, src=owner, async_op=True) for owner, part in enumerate(parts) if len(part)]
        for work in works:
            work.wait()
        return gathered

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        own = None
        for owner, part in enumerate(torch.split(gradients[0], ctx.counts)):
            part = part.clone(memory_format=torch.contiguous_format)  # reduce writes into it, on every worker
            if len(part):
                dist.reduce(part, dst=owner)
            if owner == rank():
                own = part
        assert own is not None
        return own, None


class _GlobalSum(torch.autograd.Function):
    @staticmethod
    def forward(_: Any, values: Tensor) -> Tensor:
        total = values.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(_: Any, *gradients: Tensor) -> Tensor:
        return gradients[0]
