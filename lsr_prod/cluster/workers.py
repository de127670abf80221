"""Run the tasks of a job: small work in this process, larger work on Ray, which is started when first needed.

``split`` and ``merge`` split what many tasks read into partitions, and give each partition to one task.

Ray is imported only if it is used: ``ray_session`` sets variables that Ray reads at its import.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from lsr_prod.cluster.session import ray_session
from lsr_prod.config import RaySettings

_SMALL = 32_000_000  # bytes of parts; reading and indexing them takes less time than starting a local Ray
_INLINE = 100_000  # bytes of an argument that Ray sends with the call

Result = TypeVar("Result")
Item = TypeVar("Item")


class Workers:
    """A context manager that ends the Ray session if it started one.

    Args:
        ray: settings of Ray; None: all work is done in this process.
        check: called before the first task on Ray; raises if nodes lack what tasks need.
    """

    def __init__(self, ray: RaySettings | None, *, check: Callable[[], None] | None = None) -> None:
        self._settings = ray
        self._check = check
        self._session = ExitStack()
        self._connected = "ray" in sys.modules and bool(sys.modules["ray"].is_initialized())

    def run(
        self, function: Callable[..., Result], items: Sequence[tuple[Any, ...]], *, size: int
    ) -> Iterator[tuple[int, Result]]:
        """Call a function with every tuple of arguments, as ``run_tasks`` does; ``size``: bytes that all calls read."""
        if not items:
            return
        task = function.__name__.strip("_").replace("_", " ")
        if self._settings is None or (size <= _SMALL and not self._connected):
            yield from run_calls(function, items, task=task, on_ray=False)
            return
        if not self._connected:
            self._session.enter_context(ray_session(self._settings))
            self._connected = True
        if self._check is not None:
            self._check()
            self._check = None
        yield from run_calls(function, _store_shared(items), task=task, on_ray=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()


IN_PROCESS = Workers(None)


def run_calls(
    function: Callable[..., Result], items: Sequence[tuple[Any, ...]], *, task: str, on_ray: bool
) -> Iterator[tuple[int, Result]]:
    """Call a function with every tuple of arguments, as ``run_tasks`` does, on Ray or in this process."""
    if not on_ray:
        return ((number, function(*item)) for number, item in enumerate(items))
    from lsr_prod.cluster.tasks import run_tasks

    return run_tasks(function, items, task=task)


def _store_shared(items: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Store large arguments of several calls, such as all ids of a night, once; Ray passes on their values."""
    import ray

    arguments = {id(argument): argument for item in items for argument in item}
    uses = Counter(id(argument) for item in items for argument in item)
    stored = {
        number: ray.put(argument)
        for number, argument in arguments.items()
        if uses[number] > 1 and sys.getsizeof(argument) > _INLINE
    }
    return [tuple(stored.get(id(argument), argument) for argument in item) for item in items]


@dataclass(frozen=True, slots=True)
class Splits:
    """Partitions of the results of some calls."""

    # for each call, its part of each partition: a value, or a reference of Ray's object store, which spills to disk
    parts: list[Sequence[Any]]
    notes: list[Any]  # what each call returned besides


def split(
    function: Callable[..., tuple[Sequence[Any], Any]],
    items: Sequence[tuple[Any, ...]],
    partitions: int,
    *,
    task: str,
    on_ray: bool,
) -> Splits:
    """Call a function with every tuple of arguments."""
    if not on_ray:
        found = [function(*item) for item in items]
        return Splits([parts for parts, _ in found], [note for _, note in found])
    import ray

    from lsr_prod.cluster.tasks import remote, worker_errors

    start = remote(_flat, num_returns=partitions + 1)
    calls = [start(function, *item) for item in items]
    try:
        with worker_errors(task):
            notes = ray.get([note for note, *_ in calls])
    except BaseException:
        for note, *_ in calls:
            ray.cancel(note)
        raise
    return Splits([parts for _, *parts in calls], notes)


def merge(
    function: Callable[..., Result],
    shared: tuple[Any, ...],
    splits: Splits,
    partitions: int,
    *,
    task: str,
    on_ray: bool,
) -> Iterator[Result]:
    """Call a function with all parts of each partition; yield the results in the order of completion."""
    items = [(*shared, *(parts[number] for parts in splits.parts)) for number in range(partitions)]
    yield from (result for _, result in run_calls(function, items, task=task, on_ray=on_ray))


def group_by_size(items: Sequence[Item], size: Callable[[Item], int], limit: int) -> Iterator[list[Item]]:
    """Group items into tasks of about ``limit`` bytes: a task per small item would cost more than the item."""
    group: list[Item] = []
    held = 0
    for item in items:
        if group and held + size(item) > limit:
            yield group
            group, held = [], 0
        group.append(item)
        held += size(item)
    if group:
        yield group


def _flat(function: Callable[..., tuple[Sequence[Any], Any]], *arguments: Any) -> tuple[Any, ...]:
    parts, note = function(*arguments)
    return (note, *parts)
