"""Process group of the training processes; it listens on a single address.

The rendezvous of torch listens on all interfaces of a machine. Here the first worker opens the socket itself, on the
address under which Ray knows its machine, and gloo and NCCL use the interface with that address.

Collective operations inside a loss have gradients: rows of all workers, and sums over workers. Each worker computes
the share of its own queries in the loss. The shares add up to the loss of the global batch, and their gradients to its
gradient, for any number of workers and any division of the batch. Sums and maxima of reported figures have no gradient.
Without torch.distributed, or with one worker, every operation is the identity.
"""

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import psutil
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore

# Other workers wait during a validation; a dead worker is noticed at once by its closed connections.
_TIMEOUT = timedelta(hours=2)
_LEFT: list[Any] = []  # groups that this process has left


@dataclass(frozen=True, slots=True)
class Group:
    """This process among the workers."""

    rank: int  # rank of this worker; 0 is the first
    world: int  # number of workers
    device: torch.device  # device of the computation


@contextmanager
def process_group(
    rank: int, world: int, *, use_gpu: bool, address: str, share: Callable[[tuple[str, int] | None], tuple[str, int]]
) -> Iterator[Group]:
    """Join the process group; a single worker needs none."""
    group = Group(rank, world, torch.device("cuda", 0) if use_gpu else torch.device("cpu"))
    if use_gpu:
        torch.cuda.set_device(group.device)
    if world == 1:
        yield group
        return
    os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = _interface(address)
    dist.init_process_group(
        "nccl" if use_gpu else "gloo", store=_store(rank, world, address, share), rank=rank, world_size=world,
        timeout=_TIMEOUT,
    )  # fmt: skip
    try:
        yield group
    finally:
        leave_process_group()


def leave_process_group() -> None:
    """Leave the process group, and keep its object.

    A model of DDP that lives longer would delete the object while it holds the lock of the interpreter, and wait for a
    thread of the group. If that thread needs the lock, because an operation has Python objects, neither would end.
    """
    _LEFT.append(dist.group.WORLD)
    dist.destroy_process_group()


def _store(rank: int, world: int, address: str, share: Callable[[tuple[str, int] | None], tuple[str, int]]) -> TCPStore:
    if rank > 0:
        host, port = share(None)
        return TCPStore(host, port, world, is_master=False, timeout=_TIMEOUT)
    listener = socket.create_server((address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET)
    port = int(listener.getsockname()[1])
    store = TCPStore(
        address, port, world, is_master=True, timeout=_TIMEOUT, wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )  # fmt: skip
    share((address, port))
    return store


def _interface(address: str) -> str:
    for name, addresses in psutil.net_if_addrs().items():
        if any(found.address == address for found in addresses):
            return name
    raise OSError(f"no network interface of this machine has the address {address}")


@dataclass(frozen=True, slots=True)
class Shares:
    """Division of a global batch among workers."""

    queries: list[int]  # number of queries of every worker, in rank order
    documents: list[int]  # number of documents of every worker, in rank order; places of missing hard negatives count
    # the same without the places of missing hard negatives; empty: nothing is missing
    present: list[int] = field(default_factory=list)

    @property
    def documents_of_a_query(self) -> int:
        """c, the positive and the hard negatives of a query; known even to a worker without queries."""
        return sum(self.documents) // max(1, sum(self.queries))

    @property
    def texts(self) -> int:
        """Documents of all workers, without the places of missing hard negatives."""
        return sum(self.present or self.documents)

    @property
    def incomplete(self) -> bool:
        """True if a query of any worker has fewer hard negatives than places."""
        return self.texts < sum(self.documents)

    @property
    def queries_before(self) -> int:
        """Number of queries of the workers before this one: the position of its first query in the global batch."""
        return sum(self.queries[: rank()]) if len(self.queries) > 1 else 0


def world_size() -> int:
    """Return the number of workers; 1 without torch.distributed."""
    return dist.get_world_size() if _distributed() else 1


def rank() -> int:
    """Return the rank of this worker; 0 without torch.distributed."""
    return dist.get_rank() if _distributed() else 0


def shares(queries: int, documents: int, device: torch.device, present: int | None = None) -> Shares:
    """Return the division of the global batch, by a single collective operation."""
    return Shares(*_of_all_workers([queries, documents, documents if present is None else present], device))


def all_rows(rows: torch.Tensor, counts: Sequence[int] | None = None) -> torch.Tensor:
    """Return the rows of all workers in rank order: [sum of the Bs, ...], equal on all workers.

    In the backward pass, each worker receives the sum over all workers of the gradients of its rows.
    """
    if world_size() == 1:
        return rows
    counts = _of_all_workers([len(rows)], rows.device)[0] if counts is None else list(counts)
    gathered: torch.Tensor = _AllRows.apply(rows, counts)  # type: ignore[no-untyped-call]
    return gathered


def global_sum(values: torch.Tensor) -> torch.Tensor:
    """Return the sum over workers, equal on all of them; the backward pass is the identity.

    A term that every worker computes from global sums counts once: each worker has the gradient of its own share.
    """
    if world_size() == 1:
        return values
    total: torch.Tensor = _GlobalSum.apply(values)  # type: ignore[no-untyped-call]
    return total


def _of_all_workers(numbers: list[int], device: torch.device) -> list[list[int]]:
    """Return, for each number of this worker, the numbers of all workers."""
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
    def forward(ctx: Any, rows: torch.Tensor, counts: list[int]) -> torch.Tensor:
        ctx.counts = counts
        gathered = rows.new_empty(sum(counts), *rows.shape[1:])
        parts = torch.split(gathered, counts)
        parts[rank()].copy_(rows)
        # One broadcast per worker needs no padding for unequal counts, and as many bytes as an all-gather.
        works = [dist.broadcast(part, src=owner, async_op=True) for owner, part in enumerate(parts) if len(part)]
        for work in works:
            work.wait()
        return gathered

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
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
    def forward(_: Any, values: torch.Tensor) -> torch.Tensor:
        total = values.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(_: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0]


def sum_of_workers(values: torch.Tensor) -> torch.Tensor:
    """Return the elementwise sum over all workers; a collective operation of all workers."""
    return _reduced(values, dist.ReduceOp.SUM)


def largest_of_workers(values: torch.Tensor) -> torch.Tensor:
    """Return the elementwise maximum over all workers; a collective operation of all workers."""
    return _reduced(values, dist.ReduceOp.MAX)


def _reduced(values: torch.Tensor, operation: dist.ReduceOp.RedOpType) -> torch.Tensor:
    if not _distributed():
        return values
    # NCCL reduces tensors on the worker's GPU, gloo tensors in main memory.
    device = torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")
    total = values.detach().to(device, copy=True)
    dist.all_reduce(total, op=operation)
    return total.to(values.device)
