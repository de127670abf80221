"""Best weights so far by a measure of the validations."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from lsr_prod.config.train import ValidationSettings

__all__ = ["Best"]


class Best:
    """Weights of the best validation by the measure ``validation.keep_best``.

    Attributes:
        step: completed steps at the best validation; None before the first one.
        value: the measure at that step.
        weights: the weights at that step; on the first worker only.
    """

    def __init__(self, settings: ValidationSettings | None) -> None:
        """Start without validations."""
        self._measure = settings.keep_best if settings else None
        self.step: int | None = None
        self.value: float | None = None
        self.weights: Mapping[str, Tensor] | None = None

    def offer(self, step: int, measures: Mapping[str, float], weights: Mapping[str, Tensor]) -> None:
        """Record a validation; of equally good ones the first is kept.

        Args:
            step: completed steps.
            measures: measures by name.
            weights: on the CPU; must not be changed afterwards.
        """
        if self._measure is None:
            return
        value = measures[self._measure]
        if self.value is None or value > self.value:
            self.step, self.value, self.weights = step, value, weights

    def state(self) -> dict[str, Any]:
        """Return the state of a checkpoint without the weights, as JSON values."""
        return {"step": self.step, "value": self.value}

    def load_state(self, state: Mapping[str, Any], weights: Mapping[str, Tensor] | None) -> None:
        """Restore a checkpoint."""
        self.step, self.value, self.weights = state["step"], state["value"], weights
