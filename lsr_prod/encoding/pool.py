"""Pool of encoder actors that lives as long as the job, follows the cluster, and retries blocks of dead actors.

An actor pool of Ray Data would load the model again for every dataset, and each wave is a dataset. The actors reserve
no core: reading and encoding alternate, and a core reserved by an idle actor would block the shuffle of the next wave
forever.
"""

import logging
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import ActorUnschedulableError, GetTimeoutError, RayActorError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from lsr_prod.config import EncodeSettings
from lsr_prod.encoding.actor import EncoderActor, ModelSettings
from lsr_prod.encoding.cell import WaveTask
from lsr_prod.encoding.results import BlockResult
from lsr_prod.errors import ConfigError, EncoderLostError

__all__ = ["EncoderPool", "PoolSize", "current_places", "pool_size"]

log = logging.getLogger(__name__)

_LOST = (RayActorError, ActorUnschedulableError)  # the second: its node has left before the actor started
_RESTART_S = 60.0  # until an actor that does not come back counts as another failed attempt
_PAUSE_S = 0.1
_ATTEMPTS = 4  # per block; all but the first run the model in a child process
_NODES_S = 600.0  # until a cluster without a node for an encoder is an error
_LOOK_S = 5.0  # between two looks at the nodes of the cluster
_QUEUED = 2  # blocks per actor: one being encoded, one being transferred


@dataclass(frozen=True, slots=True)
class PoolSize:
    """Number and placement of the actors.

    Attributes:
        actors: encoder actors.
        threads: ONNX Runtime threads of each.
        gpus: GPUs reserved by each.
        nodes: Ray node id of each actor.
    """

    actors: int
    threads: int
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
    return PoolSize(len(places), settings.threads_per_actor, 1 if on_gpu else 0, places)


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


@dataclass(eq=False, slots=True)
class _Member:
    """An actor, the node that it was started on, its number of unfinished calls, and whether it gets no more."""

    actor: Any
    node: str
    load: int = 0
    leaving: bool = False


class EncoderPool:
    """Actors that encode blocks. Use as a context manager; it ends the actors.

    Attributes:
        size: number and placement when the pool was made.
        blocks: blocks that each node has encoded.
    """

    def __init__(
        self, size: PoolSize, model: ModelSettings, places: Callable[[], tuple[str, ...]] | None = None
    ) -> None:
        """Start the actors.

        Args:
            size: number and placement.
            model: the model of each actor.
            places: returns the current places (``current_places``): while the pool encodes, it adds actors on new
                nodes, and those of nodes that left get no more blocks; None: the pool keeps its actors, which Ray
                restarts on any node.
        """
        self.size = size
        self.blocks: Counter[str] = Counter()
        self._model, self._places, self._looked = model, places, time.monotonic()
        self._members = [self._start(node) for node in size.nodes]

    def __enter__(self) -> "EncoderPool":
        return self

    def __exit__(self, *_: object) -> None:
        for member in self._members:
            ray.kill(member.actor)
        log.info("encoder pool closed", extra={"fields": {"blocks_by_node": dict(self.blocks)}})

    def encode(self, task: WaveTask, blocks: Sequence[Any]) -> Iterator[BlockResult]:
        """Encode the blocks of a wave and yield their results in any order; blocks of a dead actor are tried again.

        Args:
            task: the wave.
            blocks: references of tables of ``rows.row_schema``; all rows of a cell are in one block.

        Raises:
            EncoderLostError: every attempt at one block ended the actor.
        """
        shared = ray.put(task)
        todo = deque(enumerate([0] * len(blocks)))  # (block, failed attempts)
        running: dict[Any, tuple[_Member, int, int]] = {}  # call -> (member, block, failed attempts)
        while todo or running:
            self._follow_cluster()
            while todo and (member := self._least_loaded()) is not None and member.load < _QUEUED:
                block, failed = todo.popleft()
                call = member.actor.encode.remote(shared, blocks[block], isolated=failed > 0)
                running[call] = (member, block, failed)
                member.load += 1
            if not running:
                self._wait_for_nodes()
                continue
            ready, _ = ray.wait(list(running), num_returns=1, timeout=_LOOK_S)
            if not ready:
                continue
            member, block, failed = running.pop(ready[0])
            member.load -= 1
            try:
                result: BlockResult = ray.get(ready[0])
            except _LOST as error:
                fields = {"wave": task.wave, "block": block, "attempt": failed + 1, "error": str(error).split("\n")[0]}
                log.warning("encoder actor lost", extra={"fields": fields})
                if failed + 1 == _ATTEMPTS:
                    raise EncoderLostError(
                        f"encoder actors died {_ATTEMPTS} times on one block of wave {task.wave}; look for the "
                        "cause in Ray's logs (out of memory?), then run the job again"
                    ) from error
                todo.append((block, failed + 1))
                self._wait_for_restart(member)
                continue
            self.blocks[result.node] += 1
            yield result

    def _follow_cluster(self) -> None:
        """Add actors on new nodes and retire those of nodes that left; looks at the cluster every few seconds."""
        if self._places is None or time.monotonic() < self._looked + _LOOK_S:
            return
        self._looked = time.monotonic()
        wanted = Counter(self._places())
        have = Counter(member.node for member in self._members if not member.leaving)
        added = [self._start(node) for node in (wanted - have).elements()]
        surplus = have - wanted
        for member in self._members:
            if surplus[member.node] > 0 and not member.leaving:
                surplus[member.node] -= 1
                member.leaving = True
        left = [member for member in self._members if member.leaving and not member.load]
        for member in left:
            ray.kill(member.actor)
        self._members = [member for member in [*self._members, *added] if member not in left]
        if added or left:
            fields = {"added": len(added), "left": len(left), "actors": len(self._members)}
            log.info("encoder pool changed", extra={"fields": fields})

    def _least_loaded(self) -> _Member | None:
        staying = [member for member in self._members if not member.leaving]
        return min(staying, key=lambda member: member.load, default=None)

    def _wait_for_nodes(self) -> None:
        """Wait until a node has joined, after the last one with room for an actor has left."""
        log.warning("no node with room for an encoder", extra={"fields": {"waiting_s": _NODES_S}})
        end = time.monotonic() + _NODES_S
        while time.monotonic() < end:
            self._looked = -math.inf
            self._follow_cluster()
            if self._least_loaded() is not None:
                return
            time.sleep(_LOOK_S)
        raise EncoderLostError(f"no node had room for an encoder for {_NODES_S:g} s; add nodes, then run the job again")

    def _wait_for_restart(self, member: _Member) -> None:
        """Wait until Ray has restarted a dead actor; calls before that fail at once and would use up all attempts.

        An actor is never restarted on another node: a node without cores, such as the head, must not encode.
        """
        end = time.monotonic() + _RESTART_S
        while time.monotonic() < end:
            try:
                ray.get(member.actor.__ray_ready__.remote(), timeout=_LOOK_S)
                return
            except (*_LOST, GetTimeoutError):
                if self._places is not None and member.node not in self._places():
                    member.leaving = True
                    return
                time.sleep(_PAUSE_S)

    def _start(self, node: str) -> _Member:
        actor: Any = ray.remote(EncoderActor)
        options = actor.options(
            num_cpus=0,
            num_gpus=self.size.gpus,
            max_restarts=-1,
            max_task_retries=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=self._places is None),
        )
        return _Member(options.remote(self._model), node)
