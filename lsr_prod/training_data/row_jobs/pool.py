"""Pool of actors of a job that makes training rows; each works on one slice at a time."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ray

from lsr_prod.cluster.errors import worker_errors
from lsr_prod.errors import ConfigError

RESTARTS = 3
"""Restarts of an actor whose process or node was lost, and tries of its slice."""


def pool_size(section: str, *, threads: int, most: int | None, gpu: bool = False) -> int:
    """Return the number of actors that the cluster has room for, at most ``most``."""
    alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
    cores = [int(node.get("CPU", 0)) // threads for node in alive]
    if not sum(cores):
        raise ConfigError(f"{section}.threads_per_actor", f"no machine has {threads} cores", "give a lower number")
    fit = sum(min(room, int(node.get("GPU", 0))) if gpu else room for room, node in zip(cores, alive, strict=True))
    if not fit:
        raise ConfigError(f"{section}.use_gpu", "the cluster has no GPU for an actor", "set it to false")
    return min(fit, most or fit)


def run_slices(
    actors: Sequence[Any], todo: Sequence[int], call: Callable[[Any, int], Any], *, task: str
) -> Iterator[tuple[int, Any]]:
    """Yield (slice number, result) of the slices in ``todo`` as they finish; end the actors then."""
    waiting = iter(todo)
    running: dict[Any, tuple[int, Any]] = {}

    def give(actor: Any) -> None:
        for number in itertools.islice(waiting, 1):
            running[call(actor, number)] = (number, actor)

    try:
        for actor in actors:
            give(actor)
        while running:
            ((done, *_), _) = ray.wait(list(running), num_returns=1)
            number, actor = running.pop(done)
            with worker_errors(task):
                result = ray.get(done)
            give(actor)
            yield number, result
    finally:
        for actor in actors:
            ray.kill(actor)
