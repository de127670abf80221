"""Mine slices with a pool of actors that each keep the index open; Ray Data distributes the slices."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import ray
from ray.data import ActorPoolStrategy

from lsr_prod.cluster.data import data_settings
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
    items = [{"number": number, "slice": json.dumps(plan.slices[number].to_json())} for number in todo]
    shared = [ray.put(known), ray.put(teacher)]  # references in a list: the actors of a machine share one copy
    with data_settings():
        slices = ray.data.from_items(items, override_num_blocks=len(items))
        reports = slices.map_batches(
            _MineActor,
            fn_constructor_args=(plan.settings, plan.output, plan.version, plan.digest, shared),
            batch_size=1,
            batch_format="pyarrow",
            compute=ActorPoolStrategy(size=actors),
            num_cpus=plan.settings.threads_per_actor,
        )
        with worker_errors("mining negatives"):
            for row in reports.iter_rows():
                yield row["number"], PartReport.from_json(json.loads(row["report"]), row["seconds"])


class _MineActor:
    """Actor that opens the index once, then mines one slice at a time."""

    def __init__(self, settings: MineSettings, output: Store, version: str, plan: str, shared: list[Any]) -> None:
        known, teacher = ray.get(shared)
        index = MinedIndex(settings, output.options, version=version)
        self._miner = Miner(index, settings, known, teacher)
        self._output, self._plan = output, plan

    def __call__(self, items: pa.Table) -> Iterator[pa.Table]:
        for item in items.to_pylist():
            piece = Slice.from_json(json.loads(item["slice"]))
            report = mine_slice(item["number"], piece, self._miner, self._output, self._plan)
            row = {"number": item["number"], "report": json.dumps(report.to_json()), "seconds": report.seconds}
            yield pa.Table.from_pylist([row])
