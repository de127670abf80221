"""Split what many tasks read into partitions, and give each partition to one task: on Ray, or in this process.

Ray is imported only if it is used: ``ray_session`` sets variables that Ray reads at its import.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from lsr_prod.cluster.workers import run_calls

Result = TypeVar("Result")
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Splits:
    """Partitions of the results of some calls."""

    # for each call, its part of each partition: a value, or a reference of Ray's object store, which spills to
    # disk
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
