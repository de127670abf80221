"""Places of encoder actors: how many the nodes of the cluster have room for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lsr_prod.cluster.draining import usable_nodes
from lsr_prod.cluster.tasks import Needs
from lsr_prod.config import EncodeSettings
from lsr_prod.errors import ConfigError

_MEGABYTE = 1_000_000


@dataclass(frozen=True, slots=True)
class PoolSize:
    """Number and placement of the actors, and what each reserves.

    Attributes:
        actors: encoder actors that the cluster has room for.
        threads: ONNX Runtime threads of each, and cores reserved by each.
        gpus: GPUs reserved by each.
        nodes: Ray node id of each actor.
        memory_bytes: memory reserved by each; None: none.
        labels: label selector of their nodes.
        fewest: encoders that the job asks an autoscaler for at any time.
        most: encoders that it asks for while blocks wait; None: it asks for no more than ``fewest``.
        wait_s: seconds without a node for an encoder that end the job.
    """

    actors: int
    threads: int
    gpus: int
    nodes: tuple[str, ...]
    memory_bytes: int | None
    labels: tuple[tuple[str, str], ...]
    fewest: int
    most: int | None
    wait_s: float

    @property
    def needs(self) -> Needs:
        """What each actor reserves."""
        return Needs(self.threads, self.gpus, self.memory_bytes)

    @property
    def planned(self) -> int:
        """Encoders that the waves of the job are cut for."""
        return max(self.actors, self.most or 0, 1)


def pool_size(settings: EncodeSettings) -> PoolSize:
    """Compute number and placement of the actors from the nodes of the cluster.

    With a GPU provider there is one actor per GPU, else one per ``threads_per_actor`` cores of each node;
    ``encode.actors`` or ``encode.max_actors`` limits the number. With ``encode.min_actors`` or ``encode.max_actors``
    there may be none yet.
    """
    alive = usable_nodes()
    may_wait = settings.min_actors is not None or settings.max_actors is not None
    gpus = sum(int(node["Resources"].get("GPU", 0)) for node in alive)
    on_gpu = settings.provider in ("cuda", "tensorrt") or (settings.provider == "auto" and gpus > 0)
    if on_gpu and not gpus and not may_wait:
        raise ConfigError(
            "encode.provider",
            f"{settings.provider} on a cluster without a GPU",
            "set cpu or auto, or encode.max_actors to wait for nodes of an autoscaler",
        )
    memory = settings.actor_memory_megabytes
    most = settings.actors or settings.max_actors
    size = PoolSize(
        actors=0,
        threads=settings.threads_per_actor,
        gpus=1 if on_gpu else 0,
        nodes=(),
        memory_bytes=None if memory is None else memory * _MEGABYTE,
        labels=tuple(sorted(settings.labels.items())),
        fewest=settings.actors or settings.min_actors or 1,
        most=most,
        wait_s=settings.node_wait_seconds,
    )
    nodes = _places(size, alive)
    if not nodes and not may_wait:
        raise _no_room(settings, alive)
    return replace(size, actors=len(nodes), nodes=nodes)


def current_places(size: PoolSize) -> tuple[str, ...]:
    """Return the places of actors on the nodes that are alive now, none if there is no node with room."""
    return _places(size, usable_nodes())


def _room(size: PoolSize, node: Any) -> int:
    if not matches(dict(size.labels), node["Labels"]):
        return 0
    found: dict[str, float] = node["Resources"]
    room = int(found.get("GPU", 0)) if size.gpus else int(found.get("CPU", 0)) // size.threads
    return min(room, int(found.get("memory", 0)) // size.memory_bytes) if size.memory_bytes else room


def _places(size: PoolSize, nodes: Sequence[Any]) -> tuple[str, ...]:
    slots = [[node["NodeID"]] * _room(size, node) for node in nodes]
    # Round robin over the nodes, so that a limited number still uses all of them.
    places = [slot[i] for i in range(max(map(len, slots), default=0)) for slot in slots if i < len(slot)]
    return tuple(places[: size.most])


def _no_room(settings: EncodeSettings, alive: Sequence[Any]) -> ConfigError:
    fitting = [node for node in alive if matches(settings.labels, node["Labels"])]
    if alive and not fitting:
        wanted = ", ".join(f"{key}={value}" for key, value in sorted(settings.labels.items()))
        return ConfigError("encode.labels", f"no node has {wanted}", "correct the selector, or label nodes")
    cores = max((int(node["Resources"].get("CPU", 0)) for node in fitting), default=0)
    memory = max((int(node["Resources"].get("memory", 0)) for node in fitting), default=0) // _MEGABYTE
    if (settings.actor_memory_megabytes or 0) > memory:
        return ConfigError("encode.actor_memory_megabytes", f"nodes have at most {memory} MB", "lower it")
    return ConfigError(
        "encode.threads_per_actor",
        f"{settings.threads_per_actor} threads on {cores} cores",
        "lower it, or set encode.max_actors to wait for nodes of an autoscaler",
    )


def matches(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Return whether the labels of a node fulfill all conditions."""
    return all(_fulfills(condition, labels.get(key)) for key, condition in selector.items())


def _fulfills(condition: str, value: str | None) -> bool:
    negated, positive = condition.startswith("!"), condition.removeprefix("!")
    listed = positive.removeprefix("in(").removesuffix(")") if positive.startswith("in(") else None
    values = [positive] if listed is None else [each.strip() for each in listed.split(",")]
    return (value in values) != negated
