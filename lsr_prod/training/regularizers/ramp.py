"""Ramps: growth of a regularizer's weight with the step."""

from lsr_prod.config.objective import RegularizerSettings


def ramp(settings: RegularizerSettings, step: int, steps: int) -> float:
    """Return the factor of a regularizer's weight at a step: 0 at step 0, 1 from ``ramp_end`` on."""
    if settings.ramp == "none":
        return 1.0
    share = min(1.0, step / ramp_end(settings, steps))
    return share if settings.ramp == "linear" else share * share


def ramp_end(settings: RegularizerSettings, steps: int) -> int:
    """Return the first step with the full weight of the regularizer; 0 without a ramp."""
    if settings.ramp == "none":
        return 0
    return settings.ramp_steps or max(1, round(settings.ramp_share * steps))
