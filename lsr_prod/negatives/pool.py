"""Mine slices with a pool of actors that each keep the index open."""

from collections.abc import Iterator, Sequence
from typing import Any

import ray
import torch

from lsr_prod.config import MineSettings
from lsr_prod.corpus.slices import Slice
from lsr_prod.negatives.index import MinedIndex
from lsr_prod.negatives.known import KnownPositives
from lsr_prod.negatives.mine import Miner
from lsr_prod.negatives.part import PartReport, mine_slice
from lsr_prod.negatives.plan import MinePlan
from lsr_prod.negatives.teacher import TeacherScores
from lsr_prod.negatives.teacher_model import TeacherModel
from lsr_prod.scoring.pinned_model import PinnedModel
from lsr_prod.scoring.teacher import open_teacher
from lsr_prod.storage import Store
from lsr_prod.training_data.row_jobs.pool import RESTARTS, run_slices
from lsr_prod.training_data.row_jobs.pool import pool_size as row_pool_size


def pool_size(settings: MineSettings) -> int:
    """Return the number of actors: one per ``threads_per_actor`` cores of the cluster, at most ``actors``."""
    gpu = settings.teacher is not None and settings.teacher.use_gpu
    return row_pool_size("mine", threads=settings.threads_per_actor, most=settings.actors, gpu=gpu)


def mine_slices(
    plan: MinePlan, todo: Sequence[int], known: KnownPositives, teacher: TeacherScores | None, actors: int
) -> Iterator[tuple[int, PartReport]]:
    """Yield (slice number, report) of the slices in ``todo``, in the order in which they finish."""
    shared = [ray.put(known), ray.put(teacher)]  # references in a list: the actors of a machine share one copy
    actor: Any = ray.remote(_MineActor).options(
        num_cpus=plan.settings.threads_per_actor,
        num_gpus=int(plan.settings.teacher is not None and plan.settings.teacher.use_gpu),
        max_restarts=RESTARTS,
        max_task_retries=RESTARTS,
    )
    miners = [
        actor.remote(plan.settings, plan.output, plan.version, plan.digest, plan.model, shared)
        for _ in range(min(actors, len(todo)))
    ]
    yield from run_slices(
        miners,
        todo,
        lambda miner, number: miner.mine.remote(number, plan.slices[number]),
        task="mining negatives",
    )


class _MineActor:
    """Actor that opens the index with its first slice, then mines one slice at a time."""

    def __init__(
        self,
        settings: MineSettings,
        output: Store,
        version: str,
        plan: str,
        model: PinnedModel | None,
        shared: list[Any],
    ) -> None:
        self._settings, self._version, self._shared = settings, version, shared
        self._output, self._plan, self._model = output, plan, model
        self._miner: Miner | None = None  # an error of its constructor would end the actor

    def mine(self, number: int, piece: Slice) -> PartReport:
        if self._miner is None:
            index = MinedIndex(self._settings, self._output.options, version=self._version)
            known, scores = ray.get(self._shared)
            self._miner = Miner(index, self._settings, known, self._teacher() or scores)
        return mine_slice(number, piece, self._miner, self._output, self._plan)

    def _teacher(self) -> TeacherModel | None:
        teacher = self._settings.teacher
        if self._model is None or teacher is None or teacher.model is None:
            return None
        torch.set_num_threads(self._settings.threads_per_actor)
        scorer = open_teacher(
            self._model.open(),
            teacher.model,
            batch_tokens=teacher.batch_tokens,
            field="mine.teacher.model",
            device="cuda" if teacher.use_gpu else "cpu",
            threads=self._settings.threads_per_actor,
        )
        return TeacherModel(scorer)
