"""Sums over all workers of figures that are only reported: nothing of them is differentiated."""

import torch
import torch.distributed as dist
from torch import Tensor

__all__ = ["largest_of_workers", "sum_of_workers"]


def sum_of_workers(values: Tensor) -> Tensor:
    """The elementwise sum over all workers, the same on each; ``values`` itself outside torch.distributed.

    Every worker has to call it.

    Args:
        values: any shape and dtype, the same on each worker.
    """
    return _reduced(values, dist.ReduceOp.SUM)


def largest_of_workers(values: Tensor) -> Tensor:
    """The elementwise maximum over all workers; as ``sum_of_workers`` otherwise."""
    return _reduced(values, dist.ReduceOp.MAX)


def _reduced(values: Tensor, operation: dist.ReduceOp.RedOpType) -> Tensor:
    if not (dist.is_available() and dist.is_initialized()):
        return values
    # NCCL reduces what lies on the worker's own GPU, gloo what lies in main memory.
    device = torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")
    total = values.detach().to(device, copy=True)
    dist.all_reduce(total, op=operation)
    return total.to(values.device)
