"""Training sets of a fine-tuning: which set and which rows a step has, as a pure function of seed and step.

All rows of a batch are from one training set, so that the in-batch negatives of a query are of its own kind.

Learned query weights in training: one scalar per output term, trained together with the documents.

Li-LSR (Nardini et al., arXiv 2505.01452) learns one static score per token, ``log(1 + relu(w . E(t) + b))`` with the
token's word embedding E(t), and looks the scores up at query time. Here the table itself is trained (ours): the weight
of term t is ``softplus(x_t) = log(1 + exp(x_t))`` with one parameter x_t per output term. The softplus is above 0 and
has a gradient everywhere, so no term is lost, any initial weight above 0 can be expressed, and terms without a word
embedding (words, uncased terms) have weights too.
"""

import math
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Literal

import numpy as np
import torch

from lsr_prod.config import language, section, training
from lsr_prod.errors import ConfigError
from lsr_prod.training.batch_sampler import BatchSampler, permuted
from lsr_prod.training.batches import KnownPositives
from lsr_prod.training.data.training_set import Example, SampleRows, TrainingSet
from lsr_prod.training.process_group import Group, all_rows, world_size
from lsr_prod.training.twins import Numbers, draw

_ORDER, _SEEDS = 21, 22  # purpose of random numbers
_STEPS = 1 << 16  # counted at once


class SetSchedule:
    """Schedule of several data sets: the set of every step, and the batch within the set; in constant memory.

    An epoch has as many steps as all sets have batches together. With ``proportional``, a set has a share of these
    steps in proportion to its batches times its weight, in an order that is random in every epoch; all weights 1 make
    an epoch one pass over every set. With ``round_robin``, the sets take turns.
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
        # batches of each set in an epoch (proportional)
        self.counts = _shares(self.steps_per_epoch, np.array(batches) * np.array(weights, np.float64))
        if sampling == "proportional" and min(self.counts) < 1:
            number = self.counts.index(min(self.counts))
            problem = f"{weights[number]:g} gives this data set no batch in an epoch of {self.steps_per_epoch} steps"
            raise ConfigError(f"data.{number}.weight", problem, "give a larger weight, or leave the data set out")
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


def _shares(total: int, weights: np.typing.NDArray[np.float64]) -> list[int]:
    """Divide a total in proportion to weights: whole numbers by the largest remainder."""
    exact = weights / weights.sum() * total
    counts = np.floor(exact + 1e-9).astype(np.int64)
    counts[np.argsort(counts - exact, kind="stable")[: total - int(counts.sum())]] += 1
    return [int(count) for count in counts]


class DataSets:
    """The training sets of a fine-tuning and the rows of every step."""

    def __init__(self, sets: Sequence[TrainingSet | SampleRows], settings: training.FinetuneSettings) -> None:
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
        named = [one for one in settings.data_sets if isinstance(one, section.DataSetSettings)]
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


_MOMENTS = ("exp_avg", "exp_avg_sq", "step")


class QueryTable:
    """Weights of query terms and their optimizer; equal on every worker.

    AdamW runs without weight decay. The gradient of the table is clipped at ``max_grad_norm`` like that of the model,
    but by its own norm.
    """

    def __init__(self, start: torch.Tensor, settings: language.OptimizerSettings, *, factor: float) -> None:
        # log(exp(s) - 1) without overflow
        self._parameter = torch.nn.Parameter(start + torch.log(-torch.expm1(-start)))
        self._factor, self._max_norm = factor, settings.max_grad_norm
        self._optimizer = torch.optim.AdamW(
            [self._parameter], betas=settings.betas, eps=settings.epsilon, weight_decay=0.0, fused=True
        )

    def weights(self) -> torch.Tensor:
        """Return the weights, float32 [V], 0 or more, with a graph; a weight of 0 stays 0."""
        return torch.nn.functional.softplus(self._parameter)

    @torch.no_grad()
    def apply(self, learning_rate: float) -> torch.Tensor:
        """Update the weights, and return the norm of the gradient before clipping; a collective operation."""
        own = self._parameter.grad
        own = torch.zeros_like(self._parameter) if own is None else own
        # added up in rank order, so that it is equal to the bit after a restart
        self._parameter.grad = reduce(torch.add, all_rows(own[None], [1] * world_size()).unbind()) / world_size()
        norm = torch.nn.utils.clip_grad_norm_([self._parameter], math.inf if self._max_norm is None else self._max_norm)
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate * self._factor
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return norm

    def state(self) -> dict[str, torch.Tensor]:
        """Return the tensors of a checkpoint, copied to the CPU."""
        moments = self._optimizer.state.get(self._parameter, {})
        tensors = {"parameter": self._parameter, **{name: moments[name] for name in _MOMENTS if name in moments}}
        return {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}

    @torch.no_grad()
    def load_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restore ``state()``, bit for bit."""
        self._parameter.copy_(state["parameter"])
        if "step" in state:
            moments = {name: state[name].clone().to(self._parameter.device) for name in _MOMENTS}
            self._optimizer.state[self._parameter] = moments
