"""Run the tasks of a job in this process or on Ray, and check every node of a cluster before a job writes.

``Workers`` does small work in this process, and starts Ray for larger work. Ray is imported only if it is used:
``ray_session`` sets variables that Ray reads at its import.

``split`` and ``merge`` split what many tasks read into partitions, and give each partition to one task.

``require_shared_folders`` and ``require_files`` find nodes that do not see a local folder or file. On a single node
nothing is checked. Nodes that join later are not checked either; a reader there says which file its node lacks.
"""

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from lsr_prod import errors, logs
from lsr_prod.cluster.session import ray_session
from lsr_prod.config import RaySettings
from lsr_prod.storage import drafts, is_remote

log = logs.get_log(__name__)

Result = TypeVar("Result")
Item = TypeVar("Item")

_SMALL = 32_000_000  # bytes of parts; reading and indexing them takes less time than starting a local Ray
_INLINE = 100_000  # bytes of an argument that Ray sends with the call
_NAMED = 5  # nodes in a message
_SAMPLE = 16  # files that every node looks up


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


def require_shared_folders(folders: Mapping[str, str]) -> None:
    """Refuse local folders that some node does not see: a file that this process writes has to be visible on all nodes.

    The file and the folders that were created for it are removed again.
    """
    local = {field: Path(uri).absolute() for field, uri in folders.items() if not is_remote(uri)}
    if not local or not has_several_nodes():
        return
    with ExitStack() as stack:
        files = {field: str(stack.enter_context(drafts.sentinel(folder))) for field, folder in local.items()}
        found = on_every_node(_missing, [(file, 0) for file in files.values()])
    for field, file in files.items():
        _require(field, file, found, f"{local[field]} is not the same folder")


def require_files(field: str, files: Sequence[tuple[str, int]]) -> None:
    """Refuse local files that some node lacks; at most 16 of them are looked up, spread evenly."""
    if not files or not has_several_nodes():
        return
    found = on_every_node(_missing, sample := spread(files, _SAMPLE))
    for file, _ in sample:
        _require(field, file, found, f"{file} is missing or differs")


def has_several_nodes() -> bool:
    """Return whether tasks may run on a machine that is not the one of this process."""
    import ray
    from ray.util.client import ray as client

    if client.is_connected():  # type: ignore[no-untyped-call]
        return True
    return ray.is_initialized() and len(_alive()) > 1


def on_every_node(function: Callable[..., Result], *arguments: Any) -> list[tuple[str, Result]]:
    """Call a function on every alive node that has cores, on all at once.

    A node that is lost meanwhile is left out: no task will read on it.

    Returns:
        (host and address of the node, result), sorted.
    """
    import ray
    from ray.exceptions import NodeDiedError, TaskUnschedulableError, WorkerCrashedError

    from lsr_prod.cluster.tasks import Needs, remote

    running = {}
    for node in _alive():
        if node["Resources"].get("CPU") or node["Resources"].get("GPU"):
            name = f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
            running[remote(function, Needs(cpus=0, node=node["NodeID"]))(*arguments)] = name
    results = []
    for reference, name in running.items():
        try:
            results.append((name, ray.get(reference)))
        except (NodeDiedError, TaskUnschedulableError, WorkerCrashedError) as error:
            log.warning("node lost", extra={"fields": {"node": name, "error": type(error).__name__}})
    return sorted(results, key=lambda result: result[0])


def spread(items: Sequence[Result], count: int) -> list[Result]:
    """Return at most ``count`` items at even distances, with the first and the last."""
    if len(items) <= count:
        return list(items)
    return [items[number * (len(items) - 1) // (count - 1)] for number in range(count)]


def summarize_nodes(names: Sequence[str], total: int) -> str:
    """Return "2 of 3 nodes: a (10.0.0.1), b (10.0.0.2)", with at most five names."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{len(names)} of {total} nodes: {', '.join(names[:_NAMED])}{more}"


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


def _flat(function: Callable[..., tuple[Sequence[Any], Any]], *arguments: Any) -> tuple[Any, ...]:
    parts, note = function(*arguments)
    return (note, *parts)


def _require(field: str, file: str, found: Sequence[tuple[str, set[str]]], problem: str) -> None:
    """Refuse a file that some node lacks, given what every node lacks."""
    if lacking := [name for name, missing in found if file in missing]:
        raise errors.ConfigError(
            field,
            f"{problem} on {summarize_nodes(lacking, len(found))}",
            "give the URI of an object store, or a folder that every node sees",
        )


def _missing(files: Sequence[tuple[str, int]]) -> set[str]:
    """Return the files that this node lacks or that have another size."""
    return {file for file, size in files if _size(Path(file)) != size}


def _size(path: Path) -> int | None:
    with suppress(OSError):
        return path.stat().st_size
    with suppress(OSError):
        # Clients of network file systems may remember that a name was absent; opening its folder refreshes it.
        os.scandir(path.parent).close()
        return path.stat().st_size
    return None


def _alive() -> list[dict[str, Any]]:
    import ray

    return [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
