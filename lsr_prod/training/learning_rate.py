"""Learning rate as a function of the step."""

import math

from lsr_prod.config.optimization import OptimizerSettings


def learning_rate(settings: OptimizerSettings, step: int, steps: int) -> float:
    """Return the learning rate of a step.

    It rises linearly to the full rate at the last step of the warm-up, then falls to 0 at ``schedule_steps``, counted
    from step 0 (``steps`` if unset), and stays there.
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
    """Return the number of steps over which the learning rate rises."""
    if settings.warmup_steps is not None:
        return settings.warmup_steps
    return round(settings.warmup_share * steps)
