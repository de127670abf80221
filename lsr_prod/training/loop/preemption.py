"""Preemption: before machines are taken away, all workers save a checkpoint once, at the same step."""

import time
from collections.abc import Callable
from typing import Protocol

import ray.train
import torch
import torch.distributed as dist

from lsr_prod.training.parallel.process_group import Group

_EVERY_S = 2.0  # preemptions are announced at least half a minute ahead


class Announced(Protocol):
    """Announced preemptions, as ``ray.train.PreemptionInfo``."""

    preempted_node_to_ranks: dict[str, list[int]]


class Preemption:
    """Poll of Ray Train for preemptions; the answer of its actor is too slow for every step."""

    def __init__(
        self,
        group: Group,
        *,
        ask: Callable[[], Announced | None] = ray.train.get_preemption_info,
        every_s: float = _EVERY_S,
    ) -> None:
        self._group, self._ask, self._every = group, ask, every_s
        self._asked = time.monotonic()
        self._known: set[str] = set()

    def is_new(self) -> bool:
        """Return True if a preemption is new; a collective operation of all workers, with equal results."""
        if not self._is_due():
            return False
        self._asked = time.monotonic()
        announced = self._ask()
        machines = set() if announced is None else set(announced.preempted_node_to_ranks)
        new = not machines <= self._known
        self._known |= machines
        return new

    def _is_due(self) -> bool:
        """Return True on all workers as soon as a poll is due on one of them: their clocks differ."""
        due = time.monotonic() - self._asked >= self._every
        if self._group.world == 1:
            return due
        flag = torch.tensor(int(due), device=self._group.device)
        dist.all_reduce(flag, dist.ReduceOp.MAX)
        return bool(flag)
