"""Score slices with a pool of actors that each keep the teacher open."""

from collections.abc import Iterator, Sequence
from typing import Any

import ray
import torch

from lsr_prod.config import ScoreSettings
from lsr_prod.corpus.slices import Slice
from lsr_prod.scoring.part import ScoreReport, score_slice
from lsr_prod.scoring.pinned_model import PinnedModel
from lsr_prod.scoring.plan import ScorePlan
from lsr_prod.scoring.teacher import PairScorer, open_teacher
from lsr_prod.storage import Store
from lsr_prod.training_data.row_jobs.pool import RESTARTS, run_slices


def score_slices(plan: ScorePlan, todo: Sequence[int], actors: int) -> Iterator[tuple[int, ScoreReport]]:
    """Yield (slice number, report) of the slices in ``todo``, in the order in which they finish."""
    settings = plan.settings
    actor: Any = ray.remote(_ScoreActor).options(
        num_cpus=settings.threads_per_actor,
        num_gpus=int(settings.use_gpu),
        max_restarts=RESTARTS,
        max_task_retries=RESTARTS,
    )
    scorers = [actor.remote(settings, plan.model, plan.store, plan.digest) for _ in range(min(actors, len(todo)))]
    yield from run_slices(
        scorers,
        todo,
        lambda scorer, number: scorer.score.remote(number, plan.slices[number]),
        task="scoring training rows",
    )


class _ScoreActor:
    """Actor that opens the teacher with its first slice, then scores one slice at a time."""

    def __init__(self, settings: ScoreSettings, model: PinnedModel, output: Store, plan: str) -> None:
        self._settings, self._model, self._output, self._plan = settings, model, output, plan
        self._scorer: PairScorer | None = None  # an error of its constructor would end the actor

    def score(self, number: int, piece: Slice) -> ScoreReport:
        settings = self._settings
        if self._scorer is None:
            torch.set_num_threads(settings.threads_per_actor)
            self._scorer = open_teacher(
                self._model.open(),
                settings.teacher,
                batch_tokens=settings.batch_tokens,
                field="score.teacher",
                device="cuda" if settings.use_gpu else "cpu",
                threads=settings.threads_per_actor,
            )
        return score_slice(number, piece, self._scorer, settings, self._output, self._plan)
