"""Places of encoder actors: how many the nodes of the cluster have room for."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ray

from lsr_prod.config import EncodeSettings
from lsr_prod.encoding.reservations import actor_cores
from lsr_prod.errors import ConfigError

__all__ = ["PoolSize", "current_places", "pool_size"]


@dataclass(frozen=True, slots=True)
class PoolSize:
    """Number and placement of the actors.

    Attributes:
        actors: encoder actors.
        threads: ONNX Runtime threads of each.
        cores: cores reserved by each.
        gpus: GPUs reserved by each.
        nodes: Ray node id of each actor.
    """

    actors: int
    threads: int
    cores: float
    gpus: int
    nodes: tuple[str, ...]


def pool_size(settings: EncodeSettings) -> PoolSize:
    """Compute number and placement of the actors from the nodes of the cluster.

    With a GPU provider there is one actor per GPU, else one per ``threads_per_actor`` cores of each node;
    ``encode.actors`` limits the number.

    Raises:
        ConfigError: the cluster has no room for an actor.
    """
    alive = _alive()
    gpus = sum(int(node["Resources"].get("GPU", 0)) for node in alive)
    on_gpu = settings.provider in ("cuda", "tensorrt") or (settings.provider == "auto" and gpus > 0)
    if on_gpu and not gpus:
        raise ConfigError("encode.provider", f"{settings.provider} on a cluster without a GPU", "set cpu or auto")
    share = 1 if on_gpu else settings.threads_per_actor
    unit = "GPU" if on_gpu else "CPU"
    places = _places(alive, unit, share, settings.actors)
    if not places:
        cores = max((int(node["Resources"].get("CPU", 0)) for node in alive), default=0)
        raise ConfigError(
            "encode.threads_per_actor", f"{settings.threads_per_actor} threads on {cores} cores", "lower it"
        )
    return PoolSize(len(places), settings.threads_per_actor, actor_cores(settings), 1 if on_gpu else 0, places)


def current_places(size: PoolSize, limit: int | None) -> tuple[str, ...]:
    """Return the places of actors on the nodes that are alive now, none if there is no node with room.

    Args:
        size: of the pool when the job started; its actors need the same resources now.
        limit: ``encode.actors``.
    """
    unit, share = ("GPU", size.gpus) if size.gpus else ("CPU", size.threads)
    return _places(_alive(), unit, share, limit)


def _alive() -> list[Any]:
    return [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]


def _places(nodes: Sequence[Any], unit: str, share: int, limit: int | None) -> tuple[str, ...]:
    slots = [[node["NodeID"]] * (int(node["Resources"].get(unit, 0)) // share) for node in nodes]
    # Round robin over the nodes, so that a limited number still uses all of them.
    places = [slot[i] for i in range(max(map(len, slots), default=0)) for slot in slots if i < len(slot)]
    return tuple(places[:limit])
