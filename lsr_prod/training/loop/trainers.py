"""Trainers of the two kinds of loops, retrieval and language modeling, by the settings of a stage."""

import time
from collections.abc import Callable
from typing import Protocol

import ray.train
import torch
import torch.distributed as dist

from lsr_prod.config.language import LanguageSettings
from lsr_prod.config.train import FinetuneSettings
from lsr_prod.model import SparseEncoder
from lsr_prod.storage import Store
from lsr_prod.storage.artifacts import fetch_artifact
from lsr_prod.training.data.training_set import TrainingSet
from lsr_prod.training.language.objectives import make_objective
from lsr_prod.training.language.trainer import LanguageTrainer
from lsr_prod.training.loop.job import LoopInputs
from lsr_prod.training.parallel.process_group import Group
from lsr_prod.training.query_weights import initial_weights
from lsr_prod.training.regularizers.regularizers import ramp_end
from lsr_prod.training.retrieval.trainer import Trainer
from lsr_prod.training.stage_trainer import StageTrainer
from lsr_prod.training.steps import LoopSettings


def make_trainer(
    stage: LoopSettings, encoder: SparseEncoder, work: Store, inputs: LoopInputs, group: Group
) -> StageTrainer:
    """Create the trainer of a stage, at step 0."""
    data = TrainingSet.open(work, inputs.training_set)
    if isinstance(stage, FinetuneSettings):
        weights = initial_weights(encoder, inputs.term_counts, work)
        further = [TrainingSet.open(work, digest) for digest in inputs.further_sets]
        return Trainer(encoder, [data, *further], stage, group, query_weights=weights)
    teacher = None if inputs.teacher is None else fetch_artifact(work, f"models/{inputs.teacher}")
    objective = make_objective(stage, encoder, new_tokens=inputs.new_tokens, teacher=teacher)
    return LanguageTrainer(encoder, data, stage, group, objective)


def ramps_end(stage: LoopSettings, steps: int) -> int:
    """Return the first step at which all regularizers have their full weights."""
    if isinstance(stage, LanguageSettings):
        return 0
    return max((ramp_end(one, steps) for one in stage.objective.sparsity.regularizers), default=0)


_EVERY_S = 2.0  # preemptions are announced at least half a minute ahead


class Announced(Protocol):
    """Announced preemptions, as ``ray.train.PreemptionInfo``."""

    preempted_node_to_ranks: dict[str, list[int]]


class Preemption:
    """Poll of Ray Train for preemptions; the answer of its actor is too slow for every step."""

    def __init__(
        self,
        group: Group,
        *,
        ask: Callable[[], Announced | None] = ray.train.get_preemption_info,
        every_s: float = _EVERY_S,
    ) -> None:
        self._group, self._ask, self._every = group, ask, every_s
        self._asked = time.monotonic()
        self._known: set[str] = set()

    def is_new(self) -> bool:
        """Return True if a preemption is new; a collective operation of all workers, with equal results."""
        if not self._is_due():
            return False
        self._asked = time.monotonic()
        announced = self._ask()
        machines = set() if announced is None else set(announced.preempted_node_to_ranks)
        new = not machines <= self._known
        self._known |= machines
        return new

    def _is_due(self) -> bool:
        """Return True on all workers as soon as a poll is due on one of them: their clocks differ."""
        due = time.monotonic() - self._asked >= self._every
        if self._group.world == 1:
            return due
        flag = torch.tensor(int(due), device=self._group.device)
        dist.all_reduce(flag, dist.ReduceOp.MAX)
        return bool(flag)
