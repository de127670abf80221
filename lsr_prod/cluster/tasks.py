"""Units of work on Ray: each declares what it needs, a bounded number is in flight, and lost workers are replaced."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from lsr_prod.cluster.draining import usable_nodes
from lsr_prod.cluster.errors import worker_errors

Result = TypeVar("Result")
State = TypeVar("State")

_IN_FLIGHT = 10_000  # tasks that Ray holds at a time; more than a cluster has cores


@dataclass(frozen=True, slots=True)
class Needs:
    """What a unit of work needs.

    Attributes:
        cpus: cores that it reserves.
        gpus: GPUs that it reserves.
        memory: bytes that it reserves; None: none.
        node: Ray id of the node on which it has to run; None: any.
        retries: how often Ray repeats it after its process or node was lost; errors of its function end the job.
    """

    cpus: float = 1
    gpus: float = 0
    memory: int | None = None
    node: str | None = None
    retries: int = 3

    @property
    def reserved(self) -> dict[str, Any]:
        """Options of Ray for what is reserved."""
        return {"num_cpus": self.cpus, "num_gpus": self.gpus or None, "memory": self.memory}


ONE_CORE = Needs()


def remote(function: Callable[..., Any], needs: Needs = ONE_CORE, **options: Any) -> Callable[..., Any]:
    """Return a function that starts a task of Ray and returns the references of its results."""
    if needs.node is not None:
        options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(needs.node, soft=False)
    task: Any = ray.remote(function).options(max_retries=needs.retries, **needs.reserved, **options)
    start: Callable[..., Any] = task.remote
    return start


def run_tasks(
    function: Callable[..., Result], items: Sequence[tuple[Any, ...]], *, task: str, needs: Needs = ONE_CORE
) -> Iterator[tuple[int, Result]]:
    """Call a function with every tuple of arguments; needs a connection to Ray.

    If a call fails, or the caller stops iterating, unfinished calls are cancelled.

    Args:
        function: a stateless function at module level.
        items: arguments of each call, or references of Ray to them.
        task: what a call does, for messages.
        needs: of each call.

    Yields:
        Number and result of each call, in the order of completion.
    """
    if items:
        yield from _run([remote(function, needs)] * min(len(items), _IN_FLIGHT), items, task)


def run_on_actors(
    opened: Callable[[], State],
    function: Callable[..., Result],
    items: Sequence[tuple[Any, ...]],
    *,
    actors: int,
    task: str,
    needs: Needs,
) -> Iterator[tuple[int, Result]]:
    """Call a function with what an actor has opened and with every tuple of arguments; see ``run_tasks``.

    Args:
        opened: called by each actor before its first call; the value is the first argument of its calls.
        function: a function at module level.
        items: further arguments of each call.
        actors: number of actors, which each make one call at a time, and end with the last one.
        task: what a call does, for messages.
        needs: of each actor.
    """
    actor: Any = ray.remote(_Actor).options(
        max_restarts=needs.retries, max_task_retries=needs.retries, **needs.reserved
    )
    started = [actor.remote(opened, function) for _ in range(min(actors, len(items)))]
    try:
        yield from _run([each.call.remote for each in started], items, task)
    finally:
        for each in started:
            ray.kill(each)


def room(needs: Needs) -> int:
    """Return how many actors with these needs the cluster has room for."""
    wanted = {name: need for name, need in (("CPU", needs.cpus), ("GPU", needs.gpus)) if need}
    nodes = [node["Resources"] for node in usable_nodes()]
    return sum(int(min(node.get(name, 0) // need for name, need in wanted.items())) for node in nodes)


class _Actor:
    def __init__(self, opened: Callable[[], Any], function: Callable[..., Any]) -> None:
        self._opened, self._function = opened, function
        self._state: Any = None  # an error of the constructor would end the actor

    def call(self, *arguments: Any) -> Any:
        if self._state is None:
            self._state = self._opened()
        return self._function(self._state, *arguments)


def _run(
    starts: Sequence[Callable[..., Any]], items: Sequence[tuple[Any, ...]], task: str
) -> Iterator[tuple[int, Any]]:
    """Make a call of each start at a time."""
    free, waiting = deque(starts), iter(enumerate(items))
    running: dict[Any, tuple[int, Callable[..., Any]]] = {}

    def start_some() -> None:
        while free and (call := next(waiting, None)) is not None:
            number, item = call
            start = free.popleft()
            running[start(*item)] = number, start

    try:
        start_some()
        while running:
            ray.wait(list(running), num_returns=1)
            ready, _ = ray.wait(list(running), num_returns=len(running), timeout=0)  # all of them: a look costs time
            for done in ready:
                number, start = running.pop(done)
                with worker_errors(task):
                    result = ray.get(done)
                free.append(start)
                start_some()
                yield number, result
    finally:
        for unfinished in running:
            ray.cancel(unfinished)
