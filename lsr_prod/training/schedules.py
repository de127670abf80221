"""What changes with the step: ramps of regularisers and the learning rate, as functions of the step's number."""

import math

from lsr_prod.config.objective import RegularizerSettings
from lsr_prod.config.train import OptimizerSettings

__all__ = ["learning_rate", "ramp", "ramp_end", "warmup_end"]


def ramp(settings: RegularizerSettings, step: int, steps: int) -> float:
    """The share of a regulariser's weight at a step: 0 at step 0, 1 from ``ramp_end`` on.

    Args:
        settings: its ramp; quadratic: ``(step / end) ** 2``.
        step: from 0.
        steps: of the whole stage.
    """
    if settings.ramp == "none":
        return 1.0
    share = min(1.0, step / ramp_end(settings, steps))
    return share if settings.ramp == "linear" else share * share


def ramp_end(settings: RegularizerSettings, steps: int) -> int:
    """The first step at which the regulariser has its whole weight; 0 without a ramp."""
    if settings.ramp == "none":
        return 0
    return settings.ramp_steps or max(1, round(settings.ramp_share * steps))


def learning_rate(settings: OptimizerSettings, step: int, steps: int) -> float:
    """The learning rate at a step.

    It rises linearly and is whole at the last step of the warm-up; then it falls to 0 at ``schedule_steps``, counted
    from step 0, or at ``steps`` where that is unset, and stays there.

    Args:
        settings: highest rate, schedule and warm-up.
        step: from 0; no step of the warm-up has rate 0.
        steps: of the whole stage.
    """
    rising = warmup_end(settings, steps)
    if step < rising:
        return settings.learning_rate * (step + 1) / rising
    if settings.schedule == "constant":
        return settings.learning_rate
    falling = max(1, (settings.schedule_steps or steps) - rising)
    progress = min(1.0, (step - rising) / falling)
    if settings.schedule == "linear":
        return settings.learning_rate * (1 - progress)
    return settings.learning_rate * 0.5 * (1 + math.cos(math.pi * progress))


def warmup_end(settings: OptimizerSettings, steps: int) -> int:
    """Steps over which the learning rate rises."""
    if settings.warmup_steps is not None:
        return settings.warmup_steps
    return round(settings.warmup_share * steps)
