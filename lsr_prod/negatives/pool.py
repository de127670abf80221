"""Mine slices with a pool of actors that each keep the index open."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import ray

from lsr_prod.cluster.errors import worker_errors
from lsr_prod.config import MineSettings
from lsr_prod.corpus.slices import Slice
from lsr_prod.errors import ConfigError
from lsr_prod.negatives.index import MinedIndex
from lsr_prod.negatives.known import KnownPositives
from lsr_prod.negatives.mine import Miner
from lsr_prod.negatives.part import PartReport, mine_slice
from lsr_prod.negatives.plan import MinePlan
from lsr_prod.negatives.teacher import TeacherScores
from lsr_prod.storage import Store

__all__ = ["mine_slices", "pool_size"]

_RESTARTS = 3  # of an actor whose process or node was lost, and tries of its slice


def pool_size(settings: MineSettings) -> int:
    """Return the number of actors: one per ``threads_per_actor`` cores of the cluster, at most ``actors``.

    Raises:
        ConfigError: no machine has enough cores for one actor.
    """
    alive = [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
    fit = sum(int(node["Resources"].get("CPU", 0)) // settings.threads_per_actor for node in alive)
    if not fit:
        raise ConfigError(
            "mine.threads_per_actor", f"no machine has {settings.threads_per_actor} cores", "give a lower number"
        )
    return min(fit, settings.actors or fit)


def mine_slices(
    plan: MinePlan, todo: Sequence[int], known: KnownPositives, teacher: TeacherScores | None, actors: int
) -> Iterator[tuple[int, PartReport]]:
    """Yield (slice number, report) of the slices in ``todo``, in the order in which they finish.

    Raises:
        LsrError: a slice failed, or its process ended; the parts of the finished slices remain.
    """
    shared = [ray.put(known), ray.put(teacher)]  # references in a list: the actors of a machine share one copy
    actor: Any = ray.remote(_MineActor).options(
        num_cpus=plan.settings.threads_per_actor, max_restarts=_RESTARTS, max_task_retries=_RESTARTS
    )
    miners = [
        actor.remote(plan.settings, plan.output, plan.version, plan.digest, shared)
        for _ in range(min(actors, len(todo)))
    ]
    waiting = iter(todo)
    running = {}

    def give(miner: Any) -> None:
        for number in itertools.islice(waiting, 1):
            running[miner.mine.remote(number, plan.slices[number])] = (number, miner)

    try:
        for miner in miners:
            give(miner)
        while running:
            ((done, *_), _) = ray.wait(list(running), num_returns=1)
            number, miner = running.pop(done)
            with worker_errors("mining negatives"):
                report: PartReport = ray.get(done)
            give(miner)
            yield number, report
    finally:
        for miner in miners:
            ray.kill(miner)


class _MineActor:
    """Actor that opens the index with its first slice, then mines one slice at a time."""

    def __init__(self, settings: MineSettings, output: Store, version: str, plan: str, shared: list[Any]) -> None:
        self._settings, self._version, self._shared = settings, version, shared
        self._output, self._plan = output, plan
        self._miner: Miner | None = None  # an error of its constructor would end the actor

    def mine(self, number: int, piece: Slice) -> PartReport:
        if self._miner is None:
            index = MinedIndex(self._settings, self._output.options, version=self._version)
            self._miner = Miner(index, self._settings, *ray.get(self._shared))
        return mine_slice(number, piece, self._miner, self._output, self._plan)
