"""The search for a learning rate: its rule against a written-out one, and a trial of a real trainer."""

import math
from pathlib import Path
from statistics import fmean, geometric_mean
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lsr_prod.config.training import FinetuneSettings, LoopSettings
from lsr_prod.errors import TrainingCollapsedError
from lsr_prod.model import SparseEncoder
from lsr_prod.training.loop.rate import RATES, choose_rate, find_rate
from lsr_prod.training.process_group import Group
from lsr_prod.training.retrieval.trainer import Trainer
from tests.model.tiny import tiny_checkpoint
from tests.training.gloo import run_workers
from tests.training.retrieval.test_trainer import ALONE, BASE, Words


def settings(learning_rate: float | str, **optimizer: object) -> FinetuneSettings:
    return FinetuneSettings.model_validate({**BASE, "optimizer": {"learning_rate": learning_rate, **optimizer}})


def trainer_of(model: Path, stage: LoopSettings, group: Group = ALONE) -> Trainer:
    assert isinstance(stage, FinetuneSettings)
    return Trainer(SparseEncoder.load(model), Words(9), stage, group)


def recorded(trainer: Trainer, steps: list[Any]) -> Trainer:
    """Keep the outcomes of a trainer's steps."""
    step = trainer.train_step
    trainer.train_step = lambda: steps.append(step()) or steps[-1]  # type: ignore[method-assign, func-returns-value]
    return trainer


@given(st.lists(st.floats(0.01, 10), min_size=len(RATES), max_size=len(RATES)))
def test_rate_is_a_tenth_of_that_with_the_lowest_mean_before_the_mean_has_risen_by_half(losses: list[float]) -> None:
    means = [fmean(losses[start : start + 8]) for start in range(len(RATES) - 7)]
    ends = [place for place in range(1, len(means)) if means[place] >= 1.5 * min(means[:place])]
    seen = means[: ends[0] + 1] if ends else means
    if min(seen) >= 0.8 * seen[0]:
        with pytest.raises(TrainingCollapsedError, match="auto found no learning rate"):
            choose_rate(iter(losses))
    else:
        best = seen.index(min(seen))
        expected = geometric_mean(RATES[best : best + 8]) / 10
        assert choose_rate(iter(losses)) == (pytest.approx(expected), len(seen) + 7)


@pytest.mark.parametrize("lost", [math.nan, math.inf])
def test_trial_ends_at_a_loss_that_is_no_number(lost: float) -> None:
    rate, tried = choose_rate(iter([*np.linspace(3, 1, 20), *[lost] * 28]))
    assert (rate, tried) == (pytest.approx(geometric_mean(RATES[12:20]) / 10), 21)


def test_trial_is_refused_if_its_first_losses_are_no_numbers() -> None:
    with pytest.raises(TrainingCollapsedError, match="auto found no learning rate"):
        choose_rate(iter([math.nan] * 48))


@pytest.mark.long
@pytest.mark.parametrize("begins", [{"ramp": "linear", "ramp_steps": 10}, {"ramp": "none"}])
def test_trial_has_no_queue_and_no_regularizer(tmp_path: Path, begins: dict[str, object]) -> None:
    """A weight that would be full within the trial would find the rate at which vectors vanish."""
    sparsity = {"regularizers": [{"regularizer": "flops", "document": 100, **begins}]}
    objective = {**BASE["objective"], "queue": {"size": 64}, "sparsity": sparsity}  # type: ignore[dict-item]
    stage = FinetuneSettings.model_validate({**BASE, "optimizer": {"learning_rate": "auto"}, "objective": objective})
    model, seen, steps = tiny_checkpoint(tmp_path / "model", "bert"), list[LoopSettings](), list[Any]()

    def make(stage: LoopSettings) -> Trainer:
        seen.append(stage)
        return recorded(trainer_of(model, stage), steps)

    find_rate(stage, make)
    (tried,) = seen
    assert isinstance(tried, FinetuneSettings)
    assert tried.objective.queue is None
    assert all(one.losses["total"] == pytest.approx(one.losses["info_nce"], abs=0.01) for one in steps)


def test_model_that_learns_at_no_rate_is_refused_with_the_remedy() -> None:
    with pytest.raises(
        TrainingCollapsedError, match=r"48 steps at 1e-06 to 0\.1 left the loss near 3.18; set optimizer"
    ):
        choose_rate(iter([3.18] * 48))


@pytest.mark.long
def test_trial_takes_a_step_at_each_rate_and_leaves_no_trace(tmp_path: Path) -> None:
    model, tried, steps = tiny_checkpoint(tmp_path / "model", "bert"), list[Trainer](), list[Any]()

    def make(stage: LoopSettings) -> Trainer:
        tried.append(recorded(trainer_of(model, stage), steps))
        return tried[-1]

    stage = settings("auto", warmup_share=0.5)
    rate, tries = find_rate(stage, make)
    assert len(tried) == 1
    assert [one.learning_rate for one in steps] == list(RATES[: len(steps)])  # no warm-up, no decay
    assert tried[0].step == (len(steps) - 1) % 8 + 1  # the same batches again
    assert (rate, tries) == choose_rate(iter([one.losses["total"] for one in steps]))
    with pytest.raises(AssertionError):
        trainer_of(model, stage).train_step()
    found, given_rate = trainer_of(model, stage), trainer_of(model, settings(rate, warmup_share=0.5))
    found.full_rate = rate
    assert [found.train_step().losses for _ in range(4)] == [given_rate.train_step().losses for _ in range(4)]


def rate_of_worker(rank: int, world: int, model: str) -> tuple[float, int]:
    stage = settings("auto").model_copy(update={"dropout": 0.0})  # whose masks differ from worker to worker
    group = Group(rank, world, torch.device("cpu"))
    return find_rate(stage, lambda stage: trainer_of(Path(model), stage, group))


@pytest.mark.long
def test_workers_find_the_rate_of_one_worker(tmp_path: Path) -> None:
    model = str(tiny_checkpoint(tmp_path / "model", "bert"))
    first, second = run_workers(rate_of_worker, 2, 2, model)
    assert first == second == rate_of_worker(0, 1, model)
