"""Search for a learning rate: steps at rising rates, whose weights are thrown away (Smith 2017, arXiv 1506.01186)."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from lsr_prod.config.training import FinetuneSettings, LoopSettings
from lsr_prod.errors import TrainingCollapsedError
from lsr_prod.training import process_group, stage_trainer

RATES = tuple(float(rate) for rate in np.geomspace(1e-6, 1e-1, 48))
_BATCHES = 8  # that the trial repeats: means over all of them can be compared, those over other batches differ more
_STEPS = 100_000  # of the training whose first steps are tried
_LOST = 1.5  # the trial ends where the mean is this much of its minimum
_LEARNED = 0.8  # the minimum has to be less than this much of the mean at the lowest rates
_SAFETY = 10  # the rate with the lowest loss is where the next ones are too high


def find_rate(stage: LoopSettings, make: Callable[[LoopSettings], stage_trainer.StageTrainer]) -> tuple[float, int]:
    """Return a learning rate for a stage, and the steps of the trial.

    Args:
        stage: settings of the stage.
        make: makes a trainer at step 0; it is used for the trial and dropped.

    Raises:
        TrainingCollapsedError: no rate lowers the loss.
    """
    trainer = make(_trial(stage))

    def losses() -> Iterator[float]:
        for number, rate in enumerate(RATES):
            trainer.step, trainer.full_rate = number % _BATCHES, rate
            # Every worker has to take the same decision.
            yield float(process_group.largest_of_workers(torch.tensor(trainer.train_step().losses["total"])))

    return choose_rate(losses())


def _trial(stage: LoopSettings) -> LoopSettings:
    """Return the stage without what changes its loss from step to step at any rate."""
    flat = stage.optimizer.model_copy(update={"schedule": "constant", "warmup_steps": 0})
    changes: dict[str, Any] = {"optimizer": flat, "steps": _STEPS, "epochs": None}
    if isinstance(stage, FinetuneSettings):  # ramps hardly begin within 100,000 steps, and there is no queue to fill
        sparsity, late = stage.objective.sparsity, {"ramp": "quadratic", "ramp_steps": None}
        slow = [one.model_copy(update=late) for one in sparsity.regularizers]
        sparsity = sparsity.model_copy(update={"regularizers": slow})
        changes["objective"] = stage.objective.model_copy(update={"queue": None, "sparsity": sparsity})
    return stage.model_copy(update=changes)


def choose_rate(losses: Iterator[float]) -> tuple[float, int]:
    """Return a tenth of the rate around which the mean of losses is lowest, and the number of losses read.

    Args:
        losses: of a step at each of ``RATES``, on ``_BATCHES`` batches in turn; reading ends where the mean over all
            batches has risen by half.

    Raises:
        TrainingCollapsedError: the mean hardly falls.
    """
    read, means = list[float](), list[float]()
    for loss in losses:
        read.append(loss)
        if len(read) < _BATCHES:
            continue
        means.append(math.fsum(read[-_BATCHES:]) / _BATCHES)
        if not means[-1] < _LOST * min(means):  # also if it is no number
            break
    best = means.index(min(means))
    if not means[best] < _LEARNED * means[0]:
        raise TrainingCollapsedError(
            f"auto found no learning rate: {len(read)} steps at {RATES[0]:g} to {RATES[len(read) - 1]:g} left the loss "
            f"near {means[0]:.3g}; set optimizer.learning_rate to a number"
        )
    return math.sqrt(RATES[best] * RATES[best + _BATCHES - 1]) / _SAFETY, len(read)
