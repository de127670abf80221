"""Best weights so far by a measure of the validations, and early stopping."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from lsr_prod.config.train import ValidationSettings


class Best:
    """Weights of the best validation by the measure ``validation.keep_best``, and early stopping.

    Attributes:
        step: completed steps at the best validation; None before the first one, and without ``keep_best``.
        value: the measure at that step.
        weights: the weights at that step; on the first worker only.
    """

    def __init__(self, settings: ValidationSettings | None) -> None:
        self._settings = settings
        self.step: int | None = None
        self.value: float | None = None
        self.weights: Mapping[str, Tensor] | None = None
        self._reference: float | None = None
        self._without_improvement = 0

    @property
    def stopped(self) -> bool:
        """True after ``validation.stop_after`` consecutive validations without improvement; part of a checkpoint."""
        limit = None if self._settings is None else self._settings.stop_after
        return limit is not None and self._without_improvement >= limit

    def offer(self, step: int, measures: Mapping[str, float], weights: Mapping[str, Tensor]) -> None:
        """Record a validation; of equally good ones the first is kept."""
        if self._settings is None:
            return
        value = measures[self._settings.watched]
        if self._settings.keep_best is not None and (self.value is None or value > self.value):
            self.step, self.value, self.weights = step, value, weights
        if self._reference is None or value > self._reference + self._settings.min_delta:
            self._reference, self._without_improvement = value, 0
        else:
            self._without_improvement += 1

    def state(self) -> dict[str, Any]:
        """Return the state of a checkpoint without the weights, as JSON values."""
        return {
            "step": self.step,
            "value": self.value,
            "reference": self._reference,
            "without_improvement": self._without_improvement,
        }

    def load_state(self, state: Mapping[str, Any], weights: Mapping[str, Tensor] | None) -> None:
        """Restore a checkpoint."""
        self.step, self.value, self.weights = state["step"], state["value"], weights
        self._reference, self._without_improvement = state["reference"], state["without_improvement"]
