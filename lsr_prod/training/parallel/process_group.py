"""Process group of the training processes; it listens on a single address.

The rendezvous of torch listens on all interfaces of a machine. Here the first worker opens the socket itself, on the
address under which Ray knows its machine, and gloo and NCCL use the interface with that address.
"""

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import psutil
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore

# Other workers wait during a validation; a dead worker is noticed at once by its closed connections.
_TIMEOUT = timedelta(hours=2)


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
