"""Best weights so far by a measure of the validations, and early stopping."""

import json
import math
import re
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from torch import Tensor

from lsr_prod.config.language import WatchSettings
from lsr_prod.config.train import ValidationSettings
from lsr_prod.errors import ConfigError
from lsr_prod.storage.disk import disk_failure
from lsr_prod.storage.drafts import append_file, write_file
from lsr_prod.training.observers.trackers import check_watch, open_trackers


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


Values = Mapping[str, float | None]


class Reporter:
    """Writer of reports to the log and to all trackers; one per run, in the process of rank 0.

    The log has one line per report: ``{"step": 120, "time": 1.7e9, "values": {"loss": 0.5, ...}}``; ``time`` is seconds
    since 1970, and a value that is not finite is the string ``nan``, ``inf`` or ``-inf``. After a resumption the log
    contains every step once, as in an undisturbed run; so does TensorBoard.
    MLflow cannot delete and keeps repetitions, Weights & Biases drops them.

    A failure of a tracker is logged; the tracker is skipped for a while, then tried again. It never ends the run.
    """

    def __init__(self, path: Path, settings: WatchSettings, *, run: str, resumed_at: int | None = None) -> None:
        if not re.fullmatch(r"[\w-][\w.-]*", run):
            raise ValueError(f"the run {run!r} may contain only letters, digits, '_', '-' and, not at the start, '.'")
        check_watch(settings)
        _cut(path, resumed_at)
        self._file = append_file(path)
        self._path = path
        try:
            self._trackers = open_trackers(settings, run, resumed_at, path.parent)
        except ConfigError:
            self._file.close()
            raise

    def report(self, step: int, values: Values) -> None:
        """Report a step."""
        now = time.time()
        line = {"step": step, "time": now, "values": {name: _plain(value) for name, value in values.items()}}
        try:
            self._file.write(json.dumps(line, allow_nan=False) + "\n")
            self._file.flush()
        except OSError as error:
            raise disk_failure(error, self._path) from error
        known = {name: float(value) for name, value in values.items() if value is not None}
        for tracker in self._trackers:
            tracker.report(step, known, now)

    def close(self, *, failed: bool = False) -> None:
        """Close the trackers and the log; MLflow records whether the run failed."""
        for tracker in self._trackers:
            tracker.close(failed=failed)
        self._trackers = []
        self._file.close()

    def __enter__(self) -> Self:
        """Return the reporter, which is closed at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; an exception means a failed run."""
        self.close(failed=error is not None)


def read_log(path: Path) -> list[dict[str, Any]]:
    """Return the reports of a log, by increasing step, without a truncated last line of a killed process."""
    return parse_log(path.read_text(encoding="utf-8", errors="replace"))


def parse_log(text: str) -> list[dict[str, Any]]:
    """Return the reports in the text of a log; see ``read_log``."""
    reports = []
    for line in text.splitlines():
        try:
            report = json.loads(line)
        except json.JSONDecodeError:
            break
        reports.append(report)
    return reports


def _cut(path: Path, resumed_at: int | None) -> None:
    """Keep the lines up to a step; the file is replaced atomically."""
    if not path.exists():
        return
    kept = [] if resumed_at is None else [report for report in read_log(path) if report["step"] <= resumed_at]
    write_file(path, "".join(json.dumps(report) + "\n" for report in kept).encode())


def _plain(value: float | None) -> float | str | None:
    return value if value is None or math.isfinite(value) else str(float(value))
