"""Sums and maxima of reported figures over all workers, without gradients."""

import torch
import torch.distributed as dist
from torch import Tensor


def sum_of_workers(values: Tensor) -> Tensor:
    """Return the elementwise sum over all workers; ``values`` itself without torch.distributed.

    A collective operation of all workers.
    """
    return _reduced(values, dist.ReduceOp.SUM)


def largest_of_workers(values: Tensor) -> Tensor:
    """Return the elementwise maximum over all workers; otherwise like ``sum_of_workers``."""
    return _reduced(values, dist.ReduceOp.MAX)


def _reduced(values: Tensor, operation: dist.ReduceOp.RedOpType) -> Tensor:
    if not (dist.is_available() and dist.is_initialized()):
        return values
    # NCCL reduces tensors on the worker's GPU, gloo tensors in main memory.
    device = torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")
    total = values.detach().to(device, copy=True)
    dist.all_reduce(total, op=operation)
    return total.to(values.device)
