"""The best weights so far by a measure of the validations."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from lsr_prod.config.train import ValidationSettings

__all__ = ["Best"]


class Best:
    """Keeps the weights of the best validation, where ``validation.keep_best`` asks for them.

    Attributes:
        step: steps that were done then; None before the first validation.
        value: the measure then.
        weights: the weights then; on the first worker only.
    """

    def __init__(self, settings: ValidationSettings | None) -> None:
        """Nothing was validated yet."""
        self._measure = settings.keep_best if settings else None
        self.step: int | None = None
        self.value: float | None = None
        self.weights: Mapping[str, Tensor] | None = None

    def offer(self, step: int, measures: Mapping[str, float], weights: Mapping[str, Tensor]) -> None:
        """Take a validation into account; of equal ones the first stays.

        Args:
            step: steps that are done.
            measures: what was measured, by name.
            weights: on the CPU, and not changed afterwards.
        """
        if self._measure is None:
            return
        value = measures[self._measure]
        if self.value is None or value > self.value:
            self.step, self.value, self.weights = step, value, weights

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps beside the weights, as JSON."""
        return {"step": self.step, "value": self.value}

    def load_state(self, state: Mapping[str, Any], weights: Mapping[str, Tensor] | None) -> None:
        """Continue from a checkpoint."""
        self.step, self.value, self.weights = state["step"], state["value"], weights
