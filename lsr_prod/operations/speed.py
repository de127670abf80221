"""Speed of encoding, fitted to measured runs: a fixed part, and a part that grows with the tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from lsr_prod.errors import ConfigError
from lsr_prod.operations.measured import EncodeRun

_DIFFERENT = 1.5  # ratio of two amounts of work from which on a line through them has a meaning


@dataclass(frozen=True, slots=True)
class Speed:
    """Duration of a run: ``fixed_s + tokens / (tokens_per_s * actors * busy_share)``.

    Attributes:
        fixed_s: start, first read, last commit, in seconds.
        tokens_per_s: tokens per second of a busy actor.
        busy_share: share of the time between the first and the last block in which the actors work.
        fixed_origin: where ``fixed_s`` comes from.
        fixed_note: how.
    """

    fixed_s: float
    tokens_per_s: float
    busy_share: float
    fixed_origin: Literal["measured", "computed"]
    fixed_note: str

    def seconds(self, tokens: float, actors: int, *, speed: float = 1.0, busy_share: float | None = None) -> float:
        """Return the duration of a run in seconds."""
        return self.fixed_s + tokens / (self.tokens_per_s * speed * actors * (busy_share or self.busy_share))


def fit_speed(runs: Sequence[EncodeRun]) -> Speed:
    """Fit the speed to one run, or to several of different sizes.

    The fixed part of one run is the time outside its first and last block. Of several runs it is the intercept of the
    line through their durations, by least squares.
    """
    work = np.array([run.tokens / run.actors for run in runs])
    spent = sum(run.encode_seconds * run.actors for run in runs)
    busy = min(sum(run.encode_seconds * run.actors * run.busy_share for run in runs) / spent, 1.0)
    if work.max() < _DIFFERENT * work.min():
        seconds_per_token = spent / sum(run.tokens for run in runs)
        fixed = float(np.mean([max(run.seconds - run.encode_seconds, 0.0) for run in runs]))
        return Speed(fixed, 1 / (seconds_per_token * busy), busy, "measured", "time outside the first and last block")
    seconds = np.array([run.seconds for run in runs])
    slope, intercept = np.polyfit(work, seconds, 1)
    if slope <= 0 or intercept < 0:
        shown = ", ".join(f"{run.tokens:,} tokens in {run.seconds:.1f} s" for run in runs)
        raise ConfigError(
            "--run",
            f"the durations do not lie on a line with a start of 0 s or more ({shown})",
            "measure again on an idle machine, with sizes that differ more, or give one run",
        )
    return Speed(float(intercept), float(1 / (slope * busy)), busy, "computed", f"line through {len(runs)} runs")
