"""Functions run by several processes that are joined by gloo on loopback."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing import start_processes

from lsr_prod.training.process_group import leave_process_group


def run_workers(function: Callable[..., Any], world: int, *args: Any) -> list[Any]:
    """Call ``function(rank, *args)`` on every worker; the results by rank.

    Args:
        function: of a module; returns what can be pickled.
        world: number of processes.
        *args: can be pickled.
    """
    with tempfile.TemporaryDirectory() as folder:
        start_processes(_work, (world, folder, function, args), nprocs=world, start_method="forkserver")
        return [torch.load(Path(folder) / f"{rank}.pt", weights_only=False) for rank in range(world)]


def _work(rank: int, world: int, folder: str, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world)
    try:
        torch.save(function(rank, *args), Path(folder) / f"{rank}.pt")
        dist.barrier()
    finally:
        leave_process_group()
