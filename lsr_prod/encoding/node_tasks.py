"""Ray tasks on the nodes of the encoders, within the cores that the encoders reserve.

A task reserves no core of its own. Where the encoders of this job and the actors of others hold every core, it would
wait for a core that becomes free when the pool ends, and the pool waits for the task. Instead every encoder that runs
has room for a few tasks, and its node gets the next one when a task has ended.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import ray

from lsr_prod.cluster.tasks import Needs, remote, worker_errors
from lsr_prod.errors import EncoderLostError, WorkerError

_LOOK_S = 0.05  # between two looks at the encoders, while none has room
_TRIES = 4
_FEW = 32
_GROUP = 64  # cells per task: seconds, at a few requests of 20 ms each

Result = TypeVar("Result")


class NodeTasks:
    """Starts tasks where encoders run. Calls may come from several threads."""

    def __init__(self, nodes: Callable[[], Sequence[str]], threads: int) -> None:
        self._nodes, self._each = nodes, max(1, threads // 2)
        self._interrupts = 0

    def interrupt(self) -> None:
        """End the calls of other threads that wait for an encoder; calls that begin later are not affected."""
        self._interrupts += 1

    def start(self, function: Callable[..., Any], calls: Sequence[tuple[Any, ...]], returns: int) -> list[list[Any]]:
        """Start a task for every tuple of arguments, and return when the last one runs.

        No task is repeated.

        Returns:
            The references of the values of each task.
        """
        started: list[list[Any]] = []
        running: dict[Any, str] = {}  # reference of the end of a task -> its node
        free: deque[str] = deque()
        interrupts = self._interrupts
        for call in calls:
            while not free:
                self._end_some(running)
                if self._interrupts != interrupts:
                    raise EncoderLostError("tasks beside the encoders were interrupted")
                free.extend(self._free(running))
            node = free.popleft()
            needs = Needs(cpus=0, node=node, retries=0)
            task = remote(_call, needs, name=function.__name__, num_returns=returns + 1)
            end, *values = task(function, *call)
            running[end] = node
            started.append(values)
        return started

    def run(self, function: Callable[..., Result], calls: Sequence[tuple[Any, ...]], *, task: str) -> list[Result]:
        """Return the results of all calls; they are made again if a process or a node is lost."""
        attempt = 1
        while True:
            try:
                with worker_errors(task):
                    started = self.start(_as_sequence, [(function, *call) for call in calls], returns=1)
                    found: list[Result] = ray.get([values[0] for values in started])
                    return found
            except WorkerError:
                if attempt == _TRIES:
                    raise
                attempt += 1

    def run_groups(
        self, function: Callable[..., Result], shared: tuple[Any, ...], items: Sequence[Any], *, task: str
    ) -> list[Result]:
        """Return the results of ``function(*shared, group)`` for groups of items; a few are processed here."""
        if len(items) <= _FEW:
            return [function(*shared, items)]
        calls = [(*shared, items[start : start + _GROUP]) for start in range(0, len(items), _GROUP)]
        return self.run(function, calls, task=task)

    def _end_some(self, running: dict[Any, str]) -> None:
        """Forget tasks that have ended, after waiting for one for a moment."""
        if not running:
            if not self._nodes():
                time.sleep(_LOOK_S)
            return
        if ray.wait(list(running), num_returns=1, timeout=_LOOK_S)[0]:
            for end in ray.wait(list(running), num_returns=len(running), timeout=0)[0]:
                del running[end]
                ray.get(end)

    def _free(self, running: dict[Any, str]) -> list[str]:
        """Return a node for every task that the encoders have room for; neighbors differ if the encoders' nodes do."""
        taken, free = Counter(running.values()), []
        for node in [*self._nodes()] * self._each:
            if taken[node]:
                taken[node] -= 1
            else:
                free.append(node)
        return free


def _call(function: Callable[..., Sequence[Any]], *arguments: Any) -> tuple[Any, ...]:
    """Return the values of a call behind None, whose reference tells the end of the task without fetching values."""
    return (None, *function(*arguments))


def _as_sequence(function: Callable[..., Result], *arguments: Any) -> tuple[Result]:
    return (function(*arguments),)
