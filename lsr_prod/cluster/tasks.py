"""Units of work on Ray: each declares what it needs, a bounded number is in flight, and lost workers are replaced."""

import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import ray
from ray._private.state import state
from ray.exceptions import RayActorError, RayError, RayTaskError
from ray.util.client import ray as client
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from lsr_prod import errors, logs
from lsr_prod.storage.disk import disk_error

log = logs.get_log(__name__)
_LINE = 400  # characters of the cause in the message; the log has all of it
_IP = re.compile(r"\bip(?:=|: *)([0-9a-fA-F.:]+)")
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
Result = TypeVar("Result")
State = TypeVar("State")
_IN_FLIGHT = 10_000  # tasks that Ray holds at a time; more than a cluster has cores


@contextmanager
def worker_errors(task: str) -> Iterator[None]:
    """Turn every error of Ray inside the block into one of ours."""
    try:
        yield
    except RayError as error:
        raise worker_error(error, task) from error


def worker_error(error: BaseException, task: str) -> errors.LsrError:
    """Return the error to raise for an error of Ray, and log where it happened, with the traceback of the worker."""
    fields = {"task": task, "node": _node(error), "error": _cause(error), "traceback": str(error)}
    log.error("worker failed", extra={"fields": fields})
    remedy = "the log has the worker's traceback; fix the cause, then run again"
    return our_error(error) or errors.WorkerError(f"{task} failed: {describe(error)}; {remedy}")


def describe(error: BaseException) -> str:
    """Return type, message and node of an error of Ray, in one line."""
    node = _node(error)
    return f"{_cause(error)} (node {node})" if node else _cause(error)


def our_error(error: BaseException | None, place: str = "a file of a worker") -> errors.LsrError | None:
    """Return the ``LsrError`` that a worker raised, below the wrappers of Ray and Ray Train, or None.

    An error of a library about a full or broken disk becomes one.
    """
    while error is not None:
        if isinstance(error, errors.LsrError) and not isinstance(error, RayError):
            return error
        failures = getattr(error, "worker_failures", None)  # of Ray Train: rank -> error
        if isinstance(failures, Mapping):
            return next(filter(None, (our_error(one, place) for one in failures.values())), None)
        inner = _held(error) or error.__cause__
        if inner is None and not isinstance(error, RayError):
            return disk_error(error, place)
        error = inner
    return None


def _held(error: BaseException) -> BaseException | None:
    """Return the error that a wrapper holds: of a task, of the constructor of an actor, or of Ray Train."""
    held = [getattr(error, name, None) for name in ("cause", "controller_failure", "_base_exc")]
    held += [*getattr(error, "worker_failures", {}).values()]
    if isinstance(error, RayActorError):
        held += error.args[:1]
    return next((one for one in held if isinstance(one, BaseException) and one is not error), None)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, and the errors that it holds, the innermost last."""
    yield error
    if (held := _held(error)) is not None:
        yield from _chain(held)


def _cause(error: BaseException) -> str:
    """Return type and message of the innermost error, in one line."""
    *_, inner = _chain(error)
    return logs.without_credentials(" ".join(_COLOR.sub("", f"{type(inner).__name__}: {inner}").split()))[:_LINE]


def _node(error: BaseException) -> str | None:
    """Return the address of the node on which a worker failed, or None if Ray does not say it."""
    of_ray = (one for one in _chain(error) if isinstance(one, RayTaskError | RayActorError))
    return next((match[1] for one in of_ray if (match := _IP.search(str(one)))), None)


@dataclass(frozen=True, slots=True)
class Needs:
    """Cores, GPUs, memory and node of a unit of work, and how often it is tried again."""

    cpus: float = 1  # cores that it reserves
    gpus: float = 0  # GPUs that it reserves
    memory: int | None = None  # bytes that it reserves; None: none
    node: str | None = None  # Ray id of the node on which it has to run; None: any
    retries: int = 3  # how often Ray repeats it after its process or node was lost; errors of its function end the job

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
    """Call a function with what an actor has opened and with every tuple of arguments; see ``run_tasks``."""
    actor: Any = ray.remote(_Actor).options(
        max_restarts=needs.retries, max_task_retries=needs.retries, **needs.reserved
    )
    started = [actor.remote() for _ in range(min(actors, len(items)))]
    try:
        # Arguments of calls, not of the constructor: Ray does not keep those for a restart (ray-project/ray#53727).
        yield from _run([partial(each.call.remote, opened, function) for each in started], items, task)
    finally:
        for each in started:
            ray.kill(each)


def room(needs: Needs) -> int:
    """Return how many actors with these needs the cluster has room for."""
    wanted = {name: need for name, need in (("CPU", needs.cpus), ("GPU", needs.gpus)) if need}
    nodes = [node["Resources"] for node in usable_nodes()]
    return sum(int(min(node.get(name, 0) // need for name, need in wanted.items())) for node in nodes)


def usable_nodes() -> list[dict[str, Any]]:
    """Return the nodes of the cluster that are alive and have not announced their end, as Ray describes them.

    A cloud announces the end of a spot machine before it takes the machine back.
    """
    ending, nodes = draining_nodes(), ray.nodes()  # type: ignore[no-untyped-call]
    return [node for node in nodes if node["Alive"] and node["NodeID"] not in ending]


def draining_nodes() -> frozenset[str]:
    """Return the ids of nodes that will end soon; none through a Ray client, which cannot ask for them."""
    if client.is_connected() or not ray.is_initialized():  # type: ignore[no-untyped-call]
        return frozenset()
    return frozenset(state.get_draining_nodes())


class _Actor:
    def __init__(self) -> None:
        self._state: Any = None  # an error of the constructor would end the actor

    def call(self, opened: Callable[[], Any], function: Callable[..., Any], *arguments: Any) -> Any:
        if self._state is None:
            self._state = opened()
        return function(self._state, *arguments)


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
