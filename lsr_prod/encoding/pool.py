"""Pool of encoder actors that lives as long as the job and retries the blocks of actors that died.

An actor pool of Ray Data would load the model again for every dataset, and each wave is a dataset. The actors reserve
no core: reading and encoding alternate, and a core reserved by an idle actor would block the shuffle of the next wave
forever.
"""

import logging
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from lsr_prod.config import EncodeSettings
from lsr_prod.encoding.actor import EncoderActor, ModelSettings
from lsr_prod.encoding.cell import WaveTask
from lsr_prod.encoding.results import BlockResult
from lsr_prod.errors import ConfigError, EncoderLostError

__all__ = ["EncoderPool", "PoolSize", "pool_size"]

log = logging.getLogger(__name__)

_RESTART_S = 60.0  # until an actor that does not come back counts as another failed attempt
_PAUSE_S = 0.1
_ATTEMPTS = 4  # per block; all but the first run the model in a child process
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
    alive = [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
    gpus = sum(int(node["Resources"].get("GPU", 0)) for node in alive)
    on_gpu = settings.provider in ("cuda", "tensorrt") or (settings.provider == "auto" and gpus > 0)
    if on_gpu and not gpus:
        raise ConfigError("encode.provider", f"{settings.provider} on a cluster without a GPU", "set cpu or auto")
    share = 1 if on_gpu else settings.threads_per_actor
    unit = "GPU" if on_gpu else "CPU"
    slots = [[node["NodeID"]] * (int(node["Resources"].get(unit, 0)) // share) for node in alive]
    if not any(slots):
        cores = max((int(node["Resources"].get("CPU", 0)) for node in alive), default=0)
        raise ConfigError(
            "encode.threads_per_actor", f"{settings.threads_per_actor} threads on {cores} cores", "lower it"
        )
    # Round robin over the nodes, so that a limited number still uses all of them.
    places = [slot[i] for i in range(max(map(len, slots))) for slot in slots if i < len(slot)]
    actors = len(places) if settings.actors is None else min(settings.actors, len(places))
    return PoolSize(actors, settings.threads_per_actor, 1 if on_gpu else 0, tuple(places[:actors]))


class EncoderPool:
    """Actors that encode blocks. Use as a context manager; it ends the actors."""

    def __init__(self, size: PoolSize, model: ModelSettings) -> None:
        """Start the actors.

        Args:
            size: number and placement.
            model: the model of each actor.
        """
        self.size = size
        remote = ray.remote(EncoderActor)
        self._actors: list[Any] = [
            remote.options(
                num_cpus=0,
                num_gpus=size.gpus,
                max_restarts=-1,
                max_task_retries=0,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=True),
            ).remote(model)
            for node in size.nodes
        ]

    def __enter__(self) -> "EncoderPool":
        return self

    def __exit__(self, *_: object) -> None:
        for actor in self._actors:
            ray.kill(actor)

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
        running: dict[Any, tuple[int, int, int]] = {}  # call -> (actor, block, failed attempts)
        load = [0] * len(self._actors)
        while todo or running:
            while todo and min(load) < _QUEUED:
                actor = load.index(min(load))
                block, failed = todo.popleft()
                call = self._actors[actor].encode.remote(shared, blocks[block], isolated=failed > 0)
                running[call] = (actor, block, failed)
                load[actor] += 1
            (ready,), _ = ray.wait(list(running), num_returns=1)
            actor, block, failed = running.pop(ready)
            load[actor] -= 1
            try:
                yield ray.get(ready)
            except RayActorError as error:
                fields = {"wave": task.wave, "block": block, "attempt": failed + 1, "error": str(error).split("\n")[0]}
                log.warning("encoder actor lost", extra={"fields": fields})
                if failed + 1 == _ATTEMPTS:
                    raise EncoderLostError(
                        f"encoder actors died {_ATTEMPTS} times on one block of wave {task.wave}; look for the "
                        "cause in Ray's logs (out of memory?), then run the job again"
                    ) from error
                todo.append((block, failed + 1))
                _wait_for_restart(self._actors[actor])


def _wait_for_restart(actor: Any) -> None:
    """Wait until Ray has restarted a dead actor; calls before that fail at once and would use up all attempts."""
    end = time.monotonic() + _RESTART_S
    while time.monotonic() < end:
        try:
            ray.get(actor.__ray_ready__.remote(), timeout=_RESTART_S)
            return
        except (RayActorError, GetTimeoutError):
            time.sleep(_PAUSE_S)
