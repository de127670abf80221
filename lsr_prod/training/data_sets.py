"""Training sets of a fine-tuning: which set and which rows a step has, as a pure function of seed and step.

All rows of a batch are from one training set, so that the in-batch negatives of a query are of its own kind.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from lsr_prod.config.train import FinetuneSettings
from lsr_prod.config.training_data import DataSetSettings
from lsr_prod.errors import ConfigError
from lsr_prod.training.batch_sampler import BatchSampler, permuted
from lsr_prod.training.batches import KnownPositives
from lsr_prod.training.parallel.process_group import Group
from lsr_prod.training.rng import draw
from lsr_prod.training.twins import Numbers
from lsr_prod.training_data.sample_rows import SampleRows
from lsr_prod.training_data.training_set import Example, TrainingSet

_ORDER, _SEEDS = 21, 22  # purpose of random numbers
_STEPS = 1 << 16  # counted at once


class SetSchedule:
    """Schedule of several data sets: the set of every step, and the batch within the set; in constant memory.

    An epoch has as many steps as all sets have batches together. With ``proportional``, a set has a share of these
    steps in proportion to its batches times its weight, in an order that is random in every epoch; all weights 1 make
    an epoch one pass over every set. With ``round_robin``, the sets take turns.

    Attributes:
        steps_per_epoch: steps per epoch.
        counts: batches of each set in an epoch (proportional).
    """

    def __init__(
        self,
        batches: Sequence[int],
        weights: Sequence[float],
        *,
        sampling: Literal["proportional", "round_robin"],
        seed: int,
    ) -> None:
        self.steps_per_epoch = sum(batches)
        self._sampling, self._seed = sampling, seed
        self.counts = _shares(self.steps_per_epoch, np.array(batches) * np.array(weights, np.float64))
        if sampling == "proportional" and min(self.counts) < 1:
            number = self.counts.index(min(self.counts))
            raise ConfigError(
                f"data.{number}.weight",
                f"{weights[number]:g} gives this data set no batch in an epoch of {self.steps_per_epoch} steps",
                "give a larger weight, or leave the data set out",
            )
        self._ends = np.cumsum(self.counts)

    def of(self, step: int) -> tuple[int, int]:
        """Return the set of a step, and the number of its batch among all batches of this set, from 0."""
        sets, batches = self._of(np.array([step], np.int64))
        return int(sets[0]), int(batches[0])

    def taken(self, first: int, last: int) -> Numbers:
        """Return the number of batches of each set in the steps ``first`` to ``last - 1``, int64 [sets]."""
        found = np.zeros(len(self.counts), np.int64)
        for start in range(first, last, _STEPS):
            sets, _ = self._of(np.arange(start, min(start + _STEPS, last), dtype=np.int64))
            found += np.bincount(sets, minlength=len(found))
        return found

    def _of(self, steps: Numbers) -> tuple[Numbers, Numbers]:
        if self._sampling == "round_robin":
            batches, sets = np.divmod(steps, len(self.counts))
            return sets, batches
        epochs, places = np.divmod(steps, self.steps_per_epoch)
        for epoch in np.unique(epochs).tolist():
            inside = epochs == epoch
            key = int(draw(self._seed, _ORDER, epoch).view(np.int64))
            places[inside] = permuted(places[inside], self.steps_per_epoch, key)
        sets = np.searchsorted(self._ends, places, side="right")
        counts = np.array(self.counts, np.int64)[sets]
        batches = epochs * counts + places - (self._ends[sets] - counts)
        return sets.astype(np.int64), batches.astype(np.int64)


def _shares(total: int, weights: npt.NDArray[np.float64]) -> list[int]:
    """Divide a total in proportion to weights: whole numbers by the largest remainder."""
    exact = weights / weights.sum() * total
    counts = np.floor(exact + 1e-9).astype(np.int64)
    missing = total - int(counts.sum())
    counts[np.argsort(counts - exact, kind="stable")[:missing]] += 1
    return [int(count) for count in counts]


class DataSets:
    """The training sets of a fine-tuning and the rows of every step.

    Attributes:
        rows: rows of each set.
    """

    def __init__(self, sets: Sequence[TrainingSet | SampleRows], settings: FinetuneSettings) -> None:
        self._sets, self.rows = list(sets), [one.rows for one in sets]
        seeds = [settings.seed]
        if len(sets) > 1:
            seeds = [int(draw(settings.seed, _SEEDS, number) >> np.uint64(1)) for number in range(len(sets))]
        queries, grouped = settings.batch.queries, settings.batch.group_by_length
        self._samplers = [
            BatchSampler(
                one.rows, queries, seed, one.lengths if grouped else None, keys=one.keys, unique=settings.batch.unique
            )
            for one, seed in zip(sets, seeds, strict=True)
        ]
        named = [one for one in settings.data_sets if isinstance(one, DataSetSettings)]
        self._names = [one.name for one in named]
        batches = [sampler.steps_per_epoch for sampler in self._samplers]
        weights = [one.weight for one in named] or [1.0]
        self._schedule = SetSchedule(batches, weights, sampling=settings.sampling, seed=settings.seed)
        self._firsts = np.cumsum([0, *self.rows])
        self._counted, self._taken = 0, np.zeros(len(sets), np.int64)

    def worker_rows(self, step: int, parts: int, group: Group) -> list[tuple[list[Example], Numbers, KnownPositives]]:
        """Return this worker's rows of each part of a step, their numbers among all rows, and known positives."""
        number, batch = self._schedule.of(step) if len(self._sets) > 1 else (0, step)
        rows = self._samplers[number].worker_rows(batch, parts, group)
        chosen = self._sets[number]
        return [(chosen.examples(one), self._firsts[number] + one, chosen.known_positives) for one in rows]

    def figures(self, steps: int) -> dict[str, float | None]:
        """Return ``rows/<name>``, the rows of each set in the first ``steps`` steps; nothing for a single set."""
        if not self._names:
            return {}
        if steps < self._counted:
            self._counted, self._taken = 0, np.zeros_like(self._taken)
        self._taken += self._schedule.taken(self._counted, steps)
        self._counted = steps
        queries = self._samplers[0].queries
        return {f"rows/{name}": float(count * queries) for name, count in zip(self._names, self._taken, strict=True)}
