"""Checks on every node of a cluster, before a job writes: nodes that share no disk do not see local files and folders.

On a single node nothing is checked. Nodes that join later are not checked either; a reader there says which file its
node lacks.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, TypeVar

from lsr_prod.errors import ConfigError
from lsr_prod.logs import get_log
from lsr_prod.storage import is_remote
from lsr_prod.storage.drafts import sentinel

log = get_log(__name__)

Result = TypeVar("Result")

_NAMED = 5  # nodes in a message
_SAMPLE = 16  # files that every node looks up


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


def require_shared_folders(folders: Mapping[str, str]) -> None:
    """Refuse local folders that some node does not see: a file that this process writes has to be visible on all nodes.

    The file and the folders that were created for it are removed again.
    """
    local = {field: Path(uri).absolute() for field, uri in folders.items() if not is_remote(uri)}
    if not local or not has_several_nodes():
        return
    with ExitStack() as stack:
        files = {field: str(stack.enter_context(sentinel(folder))) for field, folder in local.items()}
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


def _require(field: str, file: str, found: Sequence[tuple[str, set[str]]], problem: str) -> None:
    """Refuse a file that some node lacks, given what every node lacks."""
    if lacking := [name for name, missing in found if file in missing]:
        raise ConfigError(
            field,
            f"{problem} on {summarize_nodes(lacking, len(found))}",
            "give the URI of an object store, or a folder that every node sees",
        )


def spread(items: Sequence[Result], count: int) -> list[Result]:
    """Return at most ``count`` items at even distances, with the first and the last."""
    if len(items) <= count:
        return list(items)
    return [items[number * (len(items) - 1) // (count - 1)] for number in range(count)]


def summarize_nodes(names: Sequence[str], total: int) -> str:
    """Return "2 of 3 nodes: a (10.0.0.1), b (10.0.0.2)", with at most five names."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{len(names)} of {total} nodes: {', '.join(names[:_NAMED])}{more}"


def _alive() -> list[dict[str, Any]]:
    import ray

    return [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]


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
