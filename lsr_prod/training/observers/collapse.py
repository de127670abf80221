"""Detection of collapse: end a run whose vectors are empty, full or all equal, or whose loss is not finite."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from lsr_prod.config.optimization import WatchSettings
from lsr_prod.errors import TrainingCollapsedError
from lsr_prod.logs import get_log
from lsr_prod.training.losses.chance import CONTRASTIVE

log = get_log(__name__)

_FULL = 10  # times the target
_EQUAL = 0.99  # mean cosine of pairs, together with a loss near chance
_CHANCE = 0.05  # relative distance of a loss from chance up to which it is near
_IDENTICAL = 0.9999  # mean cosine of pairs, if chance is unknown


class CollapseGuard:
    """Check of every report for collapse; part of a checkpoint.

    A loss that is not finite ends the run at once. Empty or full vectors are logged when they first occur, and end the
    run after ``watch.patience`` consecutive reports: an encoder can recover from such a state early in its ramps.

    The vectors are equal if the mean cosine of pairs of queries, or of documents, is .99 or more while the contrastive
    loss is within 5 % of chance. Both are normal for an untrained encoder, so the reports count from the end of the
    warm-up of the learning rate, and the symptom is logged after half of the patience. Without a contrastive loss, the
    level of chance is unknown, and the mean cosine has to be .9999.
    """

    def __init__(self, settings: WatchSettings, ramps_end: int, warmup_end: int = 0) -> None:
        self._settings = settings
        self._ramps_end, self._warmup_end = ramps_end, warmup_end
        self._streaks: dict[str, int] = {}

    def check(self, step: int, values: Mapping[str, float | None]) -> None:
        """Check a report."""
        _check_numbers(step, values)
        found = dict(self._symptoms(step, values))
        self._streaks = {name: self._streaks.get(name, 0) + 1 for name in found}
        for name, (sentence, remedy) in found.items():
            seen = self._streaks[name]
            if seen >= self._settings.patience:
                raise TrainingCollapsedError(f"step {step}: {sentence} in {seen} consecutive reports; {remedy}")
            if seen == self._first_warning(name):
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

        if step >= self._warmup_end:
            yield from _equal_vectors(values)

    def _first_warning(self, name: str) -> int:
        """Return the number of consecutive reports after which a symptom is logged."""
        return max(1, self._settings.patience // 2) if name.startswith("equal_") else 1

    def state(self) -> dict[str, int]:
        """Return the state of a checkpoint, as JSON values: consecutive reports by symptom."""
        return dict(self._streaks)

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore a checkpoint."""
        self._streaks = {str(name): int(seen) for name, seen in state.items()}


def _equal_vectors(values: Mapping[str, float | None]) -> Iterator[tuple[str, tuple[str, str]]]:
    chance, enough, at_chance = values.get("chance"), _IDENTICAL, ""
    if chance is not None:
        loss = sum(values.get(f"loss_{name}") or 0.0 for name in CONTRASTIVE)
        if abs(loss - chance) > _CHANCE * chance:
            return
        enough, at_chance = _EQUAL, f" and the loss is at chance ({loss:.3f}; equal vectors have {chance:.3f})"
    for kind, plural in (("document", "documents"), ("query", "queries")):
        cosine = values.get(f"cosine_{kind}")
        if cosine is not None and cosine >= enough:
            sentence = f"all {plural} have nearly the same vector (mean cosine {cosine:.4f}){at_chance}"
            yield f"equal_{kind}", (sentence, "lower the learning rate or the regularizers, or lengthen their ramps")


def _check_numbers(step: int, values: Mapping[str, float | None]) -> None:
    for name, title in (("loss", "the loss"), ("grad_norm", "the norm of the gradients")):
        value = values.get(name)
        if value is not None and not math.isfinite(value):
            raise TrainingCollapsedError(
                f"step {step}: {title} is {value}; lower optimizer.learning_rate, set optimizer.max_grad_norm, or "
                "train with scale.precision fp32"
            )
