"""Machines that are about to be taken away: all workers hear of it at the same step, and save once."""

import time
from collections.abc import Callable
from typing import Protocol

import ray.train
import torch
import torch.distributed as dist

from lsr_prod.training.parallel.process_group import Group

__all__ = ["Announced", "Preemption"]

_EVERY_S = 2.0  # machines are announced half a minute before they go, or earlier


class Announced(Protocol):
    """What Ray Train says of machines that will go; ``ray.train.PreemptionInfo``."""

    preempted_node_to_ranks: dict[str, list[int]]


class Preemption:
    """Asks Ray Train now and then; its answer comes through an actor, which is too slow for every step."""

    def __init__(
        self,
        group: Group,
        *,
        ask: Callable[[], Announced | None] = ray.train.get_preemption_info,
        every_s: float = _EVERY_S,
    ) -> None:
        """Nothing is announced yet.

        Args:
            group: this process among the workers.
            ask: every worker calls it equally often, and all get the same answer.
            every_s: seconds between two questions.
        """
        self._group, self._ask, self._every = group, ask, every_s
        self._asked = time.monotonic()
        self._known: set[str] = set()

    def is_new(self) -> bool:
        """Whether a machine is about to go that was not before; every worker has to call it, and all get one answer."""
        if not self._is_due():
            return False
        self._asked = time.monotonic()
        announced = self._ask()
        machines = set() if announced is None else set(announced.preempted_node_to_ranks)
        new = not machines <= self._known
        self._known |= machines
        return new

    def _is_due(self) -> bool:
        """Clocks differ, and a question is one of all workers: one whose time has come asks for all."""
        due = time.monotonic() - self._asked >= self._every
        if self._group.world == 1:
            return due
        flag = torch.tensor(int(due), device=self._group.device)
        dist.all_reduce(flag, dist.ReduceOp.MAX)
        return bool(flag)
