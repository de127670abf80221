"""Reads of a tensor's values by the host, such as its number of nonzero elements.

On a CPU they are free. On a GPU each one waits until all kernels before it have ended, and the GPU then waits for the
host. Code that would choose its shapes by values therefore has a second form with fixed shapes for GPUs.
"""

import torch


def are_free(device: torch.device) -> bool:
    """Return whether reading values on a device costs nothing."""
    return device.type == "cpu"
