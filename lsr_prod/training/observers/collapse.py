"""Detection of collapse: end a run whose vectors are empty or full, or whose loss is not finite."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from lsr_prod.config.train import WatchSettings
from lsr_prod.errors import TrainingCollapsedError
from lsr_prod.logs import get_log

__all__ = ["CollapseGuard"]

log = get_log(__name__)

_FULL = 10  # times the target


class CollapseGuard:
    """Check of every report for collapse; part of a checkpoint.

    A loss that is not finite ends the run at once. Empty or full vectors are logged when they first occur, and end the
    run after ``watch.patience`` consecutive reports: an encoder can recover from such a state early in its ramps.
    """

    def __init__(self, settings: WatchSettings, ramps_end: int) -> None:
        """Start without symptoms.

        Args:
            settings: ``l0_target`` and ``patience``.
            ramps_end: the first step with the full weights of all regularizers.
        """
        self._settings = settings
        self._ramps_end = ramps_end
        self._streaks: dict[str, int] = {}

    def check(self, step: int, values: Mapping[str, float | None]) -> None:
        """Check a report.

        Args:
            step: step of the report.
            values: of these, ``loss``, ``grad_norm``, ``l0_query`` and ``l0_document`` are checked if present.

        Raises:
            TrainingCollapsedError: the run has collapsed.
        """
        _check_numbers(step, values)
        found = dict(self._symptoms(step, values))
        self._streaks = {name: self._streaks.get(name, 0) + 1 for name in found}
        for name, (sentence, remedy) in found.items():
            seen = self._streaks[name]
            if seen >= self._settings.patience:
                raise TrainingCollapsedError(f"step {step}: {sentence} in {seen} consecutive reports; {remedy}")
            if seen == 1:
                fields = {"step": step, "symptom": name, "ends_after_reports": self._settings.patience}
                log.warning("possible collapse: %s; %s", sentence, remedy, extra={"fields": fields})

    def _symptoms(self, step: int, values: Mapping[str, float | None]) -> Iterator[tuple[str, tuple[str, str]]]:
        for kind, plural in (("document", "documents"), ("query", "queries")):
            if values.get(f"l0_{kind}") == 0:
                sentence = f"all {plural} have 0 active terms"
                yield f"empty_{kind}", (sentence, "lower the regularizers or the learning rate, or lengthen the ramps")
        target, l0 = self._settings.l0_target, values.get("l0_document")
        if target is not None and l0 is not None and step >= self._ramps_end and l0 > _FULL * target:
            sentence = f"documents have {l0:.0f} active terms, more than {_FULL} times watch.l0_target ({target})"
            yield "full_document", (sentence, "raise the document regularizer, or lower the learning rate")

    def state(self) -> dict[str, int]:
        """Return the state of a checkpoint, as JSON values: consecutive reports by symptom."""
        return dict(self._streaks)

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore a checkpoint."""
        self._streaks = {str(name): int(seen) for name, seen in state.items()}


def _check_numbers(step: int, values: Mapping[str, float | None]) -> None:
    for name, title in (("loss", "the loss"), ("grad_norm", "the norm of the gradients")):
        value = values.get(name)
        if value is not None and not math.isfinite(value):
            raise TrainingCollapsedError(
                f"step {step}: {title} is {value}; lower optimizer.learning_rate, set optimizer.max_grad_norm, or "
                "train with scale.precision fp32"
            )
