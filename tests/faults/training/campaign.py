"""Kills at seeded moments of trainings; what each leaves is compared with a training that was left alone."""

import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.training.run import MOMENTS, VICTIMS, Training
from tests.training.small import small_collection, small_start, small_training, weights_of

__all__ = ["Campaign", "Found", "plan_kills"]

_REPORTS, _CHECKPOINTS, _VALIDATIONS = 1, 10, 15  # steps between two
_SPEED = {"docs_per_s", "tokens_per_s", "step_s", "mfu", "peak_memory_bytes"}  # of the machine, not of the weights


@dataclass(slots=True)
class Found:
    """What went wrong, and what was done.

    Attributes:
        sentences: of each fault of ours.
        landed: kills by victim and moment.
        trainings: that came to their end.
        restarts: of the job.
    """

    sentences: list[str] = field(default_factory=list)
    landed: Counter[str] = field(default_factory=Counter)
    trainings: int = 0
    restarts: int = 0


def plan_kills(seed: int, kills: int) -> list[tuple[str, str]]:
    """(victim, moment) of each kill: every victim in every moment before one comes again, in an order of the seed."""
    rng = random.Random(f"training {seed}")
    pairs = [(victim, moment) for moment in MOMENTS for victim in VICTIMS]
    plan: list[tuple[str, str]] = []
    while len(plan) < kills:
        plan += rng.sample(pairs, len(pairs))
    return plan[:kills]


class Campaign:
    """A reference, and trainings that are killed until the plan is done.

    Args:
        folder: an empty one on a local disk.
        seed: of the moments.
        steps: of a training.
    """

    def __init__(self, folder: Path, seed: int, *, steps: int = 160) -> None:
        self._folder, self._steps = folder, steps
        self._rng = random.Random(f"moments {seed}")
        self._start = small_start(folder / "start")
        self.found = Found()

    def run(self, kills: list[tuple[str, str]]) -> Found:
        """Kill as planned; a training that ends too early is followed by another."""
        settings, training = self._new("reference")
        training.start()
        summary = training.finish()
        assert summary is not None
        self._reference = weights_of(Path(settings["train"]["output"])), _comparable(training.reports())
        waiting = list(kills)
        while waiting:
            waiting = self._kill(waiting)
        return self.found

    def _new(self, name: str) -> tuple[dict[str, Any], Training]:
        folder = self._folder / name
        folder.mkdir()
        settings = small_training(
            folder, self._start, workers=2, steps=self._steps, checkpoint_every=_CHECKPOINTS, watch={"every": _REPORTS},
            validation=small_collection(folder, _VALIDATIONS), dropout=0.1,
        )  # fmt: skip
        settings["train"]["max_failures"] = -1
        settings["ray"] = {"num_cpus": 2}
        return settings, Training(settings, folder)

    def _kill(self, waiting: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """One training, and the kills that it lives long enough for; the others come back."""
        settings, training = self._new(f"run-{self.found.trainings}")
        training.start()
        try:
            for number, (victim, moment) in enumerate(waiting):
                if not training.kill(victim, moment, self._rng):
                    waiting = waiting[number:]
                    break
                self.found.landed[f"{victim}.{moment}"] += 1
                print(f"training: {victim} killed in a {moment}, {self.found.landed.total()} kills", flush=True)
                if victim == "job":
                    training.finish()
                    training.damage(self._rng)
                    self.found.restarts += 1
                    training.start()
            else:
                waiting = []
            summary = training.finish()
        finally:
            training.stop()
        self.found.trainings += 1
        if summary is None:
            self.found.sentences.append("a job was killed by another than us")
        else:
            self._judge(settings, training)
        return waiting

    def _judge(self, settings: dict[str, Any], training: Training) -> None:
        weights, reports = self._reference
        if weights_of(Path(settings["train"]["output"])) != weights:
            self.found.sentences.append("weights are not those of the training that was left alone")
        reported = _comparable(training.reports())
        steps = [step for step, _ in reported]
        if steps != list(range(self._steps + 1)):  # 0: the validation before the first step
            self.found.sentences.append(f"steps are reported twice or not at all: {steps}")
        for (step, mine), (_, theirs) in zip(reported, reports, strict=False):
            if mine != theirs:
                self.found.sentences.append(f"the report of step {step} differs: {mine} is not {theirs}")
                break


def _comparable(reports: list[dict[str, Any]]) -> list[tuple[int, dict[str, Any]]]:
    return [
        (report["step"], {name: value for name, value in report["values"].items() if name not in _SPEED})
        for report in reports
    ]
