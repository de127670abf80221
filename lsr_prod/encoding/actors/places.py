"""Places of encoder actors: how many the nodes of the cluster have room for.

``Demand`` asks for encoders that the cluster has no room for, in a form that Ray's autoscaler sees: pending actors.

A pending actor does nothing. It asks for the resources of an encoder, which no node has left beside the encoders there,
so it starts on a new node only. Then it ends, and the pool starts its encoders there.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ray

from lsr_prod import errors, logs
from lsr_prod.cluster.tasks import Needs, usable_nodes
from lsr_prod.config import EncodeSettings
from lsr_prod.encoding.plans.encode_plan import Plan

log = logs.get_log(__name__)

_MEGABYTE = 1_000_000
_LOOK_S = 1.0  # between two looks at the nodes


@dataclass(frozen=True, slots=True)
class PoolSize:
    """Number and placement of the actors, and what each reserves."""

    settings: EncodeSettings  # the section ``encode``
    needs: Needs  # resources that each actor reserves; several share a GPU
    nodes: tuple[str, ...]  # Ray node id of each actor that the cluster has room for
    fewest: int  # encoders that the job asks an autoscaler for at any time
    most: int | None  # encoders that it asks for while blocks wait; None: it asks for no more than ``fewest``

    @property
    def planned(self) -> int:
        """Encoders that the waves of the job are cut for."""
        return max(len(self.nodes), self.most or 0, 1)


def pool_size(settings: EncodeSettings) -> PoolSize:
    """Compute number and placement of the actors from the nodes of the cluster.

    There is one per ``threads_per_actor`` cores of each node, and with a GPU provider at most
    ``encode.actors_per_gpu`` per GPU; ``encode.actors`` or ``encode.max_actors`` limits the number. With
    ``encode.min_actors`` or ``encode.max_actors`` there may be none yet.
    """
    alive = usable_nodes()
    may_wait = settings.min_actors is not None or settings.max_actors is not None
    gpus = sum(int(node["Resources"].get("GPU", 0)) for node in alive)
    on_gpu = settings.provider in ("cuda", "tensorrt") or (settings.provider == "auto" and gpus > 0)
    if on_gpu and not gpus and not may_wait:
        raise errors.ConfigError(
            "encode.provider",
            f"{settings.provider} on a cluster without a GPU",
            "set cpu or auto, or encode.max_actors to wait for nodes of an autoscaler",
        )
    needs = Needs(
        cpus=settings.threads_per_actor,
        gpus=1 / settings.actors_per_gpu if on_gpu else 0,
        memory=(settings.actor_memory_megabytes or 0) * _MEGABYTE or None,
    )
    most = settings.actors or settings.max_actors
    size = PoolSize(settings, needs, (), fewest=settings.actors or settings.min_actors or 1, most=most)
    nodes = _places(size, alive)
    if not nodes and not may_wait:
        raise _no_room(settings, alive)
    return replace(size, nodes=nodes)


def current_places(size: PoolSize) -> tuple[str, ...]:
    """Return the places of actors on the nodes that are alive now, none if there is no node with room."""
    return _places(size, usable_nodes())


def _room(size: PoolSize, node: Any) -> int:
    if not matches(size.settings.labels, node["Labels"]):
        return 0
    found: dict[str, float] = node["Resources"]
    room = int(found.get("CPU", 0)) // size.settings.threads_per_actor
    if size.needs.gpus:
        room = min(room, int(found.get("GPU", 0)) * size.settings.actors_per_gpu)
    return min(room, int(found.get("memory", 0)) // size.needs.memory) if size.needs.memory else room


def _places(size: PoolSize, nodes: Sequence[Any]) -> tuple[str, ...]:
    slots = [[node["NodeID"]] * _room(size, node) for node in nodes]
    # Round robin over the nodes, so that a limited number still uses all of them.
    places = [slot[i] for i in range(max(map(len, slots), default=0)) for slot in slots if i < len(slot)]
    return tuple(places[: size.most])


def _no_room(settings: EncodeSettings, alive: Sequence[Any]) -> errors.ConfigError:
    fitting = [node for node in alive if matches(settings.labels, node["Labels"])]
    if alive and not fitting:
        wanted = ", ".join(f"{key}={value}" for key, value in sorted(settings.labels.items()))
        return errors.ConfigError("encode.labels", f"no node has {wanted}", "correct the selector, or label nodes")
    cores = max((int(node["Resources"].get("CPU", 0)) for node in fitting), default=0)
    memory = max((int(node["Resources"].get("memory", 0)) for node in fitting), default=0) // _MEGABYTE
    if (settings.actor_memory_megabytes or 0) > memory:
        return errors.ConfigError("encode.actor_memory_megabytes", f"nodes have at most {memory} MB", "lower it")
    return errors.ConfigError(
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


class Demand:
    """Pending actors. Use as a context manager; it withdraws the demand."""

    def __init__(self, size: PoolSize) -> None:
        self._size = size
        self._pending: list[tuple[Any, Any]] = []  # (actor, reference of the call that ends when it runs)

    def __enter__(self) -> "Demand":
        return self

    def __exit__(self, *_: object) -> None:
        self._withdraw(0)

    def set(self, encoders: int) -> None:
        """Ask for a number of encoders beyond those that the cluster has room for, in place of what was asked for."""
        wanted = max(encoders, 0)
        placed = ray.wait([call for _, call in self._pending], num_returns=len(self._pending), timeout=0)[0]
        for pending in [pending for pending in self._pending if pending[1] in placed]:
            ray.kill(pending[0])
            self._pending.remove(pending)
        self._withdraw(wanted)
        while len(self._pending) < wanted:
            self._pending.append(self._ask())

    def _withdraw(self, keep: int) -> None:
        for actor, _ in self._pending[keep:]:
            ray.kill(actor)
        del self._pending[keep:]

    def _ask(self) -> tuple[Any, Any]:
        size = self._size
        actor: Any = ray.remote(_Pending)
        handle = actor.options(**size.needs.reserved, label_selector=size.settings.labels).remote()
        return handle, handle.__ray_ready__.remote()


class _Pending:
    """Actor without methods."""


def wait_for_room(settings: EncodeSettings) -> PoolSize:
    """Return the size of the pool, after waiting for a node with room for an encoder."""
    size = pool_size(settings)
    if size.nodes:
        return size
    asked, limit_s = max(size.fewest, size.most or 0), settings.node_wait_seconds
    log.info("waiting for nodes", extra={"fields": {"actors": asked, "gpus": size.needs.gpus, "limit_s": limit_s}})
    end = time.monotonic() + limit_s
    with Demand(size) as demand:
        while not size.nodes:
            if time.monotonic() > end:
                raise errors.EncoderLostError(
                    f"no node with room for an encoder joined within {limit_s:g} s; look at the autoscaler, "
                    "then run the job again"
                )
            demand.set(asked)
            time.sleep(_LOOK_S)
            size = pool_size(settings)
    return size


def report_idle_actors(plan: Plan, actors: int) -> None:
    """Log a warning if waves have fewer cells than there are actors, and which setting of a new plan changes that.

    The plan does not follow the size of the cluster: the markers of its finished cells are valid on every cluster.
    """
    cells = min((len(plan.cells_of(wave)) for wave in range(plan.waves)), default=actors)
    if cells >= actors:
        return
    if plan.largest_wave_bytes >= actors * _MEGABYTE:
        remedy = f"lower encode.cell_megabytes to {plan.largest_wave_bytes // (actors * _MEGABYTE)}"
    elif plan.waves > 1:
        remedy = f"raise encode.wave_megabytes to {actors * plan.header.encode['cell_megabytes']}"
    else:
        return  # there is less than a megabyte for each actor
    fields = {"cells": cells, "actors": actors, "remedy": f"{remedy} for the next plan"}
    log.warning("fewer cells than actors", extra={"fields": fields})
