"""Reports of a training run: a log, and the curves in Ray's metrics and in the trackers of ``lsr_prod_contrib``."""

import json
import math
import re
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, Self

from lsr_prod import errors, extras, logs
from lsr_prod.config.language import WatchSettings
from lsr_prod.storage import disk, drafts
from lsr_prod.storage.formats import digests

log = logs.get_log(__name__)

_REMEDY = "set one that is reachable, or leave it unset"


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
        self._file = drafts.append_file(path)
        self._path = path
        try:
            self._trackers = open_trackers(settings, run, resumed_at, path.parent)
        except errors.ConfigError:
            self._file.close()
            raise

    def report(self, step: int, values: Mapping[str, float | None]) -> None:
        """Report a step."""
        now = time.time()
        line = {"step": step, "time": now, "values": {name: _plain(value) for name, value in values.items()}}
        try:
            self._file.write(json.dumps(line, allow_nan=False) + "\n")
            self._file.flush()
        except OSError as error:
            raise disk.disk_failure(error, self._path) from error
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
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self.close(failed=error is not None)


def read_log(path: Path) -> list[dict[str, Any]]:
    """Return the reports of a log, by increasing step."""
    return parse_log(path.read_text(encoding="utf-8", errors="replace"), str(path))


def parse_log(text: str, place: str) -> list[dict[str, Any]]:
    """Return the reports in the text of a log, without a truncated last line of a killed process.

    Raises:
        ArtifactError: another line is no report.
    """
    reports = []
    for number, line in enumerate(text.split("\n")[:-1], 1):
        with digests.parsing(f"line {number} of {place} is no report", "delete the line"):
            one = json.loads(line)
            reports.append({"step": int(one["step"]), "time": float(one["time"]), "values": dict(one["values"])})
    return reports


def _cut(path: Path, resumed_at: int | None) -> None:
    """Keep the lines up to a step; the file is replaced atomically."""
    if not path.exists():
        return
    kept = [] if resumed_at is None else [report for report in read_log(path) if report["step"] <= resumed_at]
    drafts.write_file(path, "".join(json.dumps(report) + "\n" for report in kept).encode())


def _plain(value: float | None) -> float | str | None:
    return value if value is None or math.isfinite(value) else str(float(value))


def check_watch(settings: WatchSettings) -> None:
    """Check that the configured trackers are installed, before anything is trained."""
    extras.contrib("trackers").check_installed(settings)


def open_trackers(settings: WatchSettings, run: str, resumed_at: int | None, place: Path) -> "list[GuardedTracker]":
    """Open the configured trackers, and Ray's metrics in a process of Ray."""
    openers: dict[str, Callable[[], Tracker]] = extras.contrib("trackers").openers(settings, run, resumed_at, place)
    if "ray" in sys.modules and sys.modules["ray"].is_initialized():
        openers = {"ray": lambda: _RayMetrics(run), **openers}
    trackers: list[GuardedTracker] = []
    for name, opener in openers.items():
        try:
            trackers.append(GuardedTracker(name, opener()))
        except Exception as error:
            if resumed_at is None:
                for tracker in trackers:
                    tracker.close(failed=True)
                problem = f"{name} cannot be opened ({_short(error)})"
                raise errors.ConfigError(f"watch.{name}", problem, _REMEDY) from error
            log.warning("tracker not opened", extra={"fields": {"tracker": name, "error": _short(error)}})
    return trackers


class Tracker(Protocol):
    """Tracker of curves."""

    def report(self, step: int, values: Mapping[str, float], now: float) -> None:
        """Record the values of a step; ``now`` is seconds since 1970."""

    def close(self, *, failed: bool) -> None:
        """End the run."""


class GuardedTracker:
    """Tracker whose failures do not end the run: each consecutive failure doubles the number of skipped reports."""

    def __init__(self, name: str, tracker: Tracker) -> None:
        self._name, self._tracker = name, tracker
        self._failures = self._skip = 0

    def report(self, step: int, values: Mapping[str, float], now: float) -> None:
        """Forward the values; log a failure."""
        if self._skip:
            self._skip -= 1
            return
        try:
            self._tracker.report(step, values, now)
        except Exception as error:  # noqa: BLE001 - no failure of a tracker ends the training
            self._failures += 1
            self._skip = 2**self._failures
            fields = {"tracker": self._name, "step": step, "error": _short(error), "reports_skipped": self._skip}
            log.warning("tracker failed", extra={"fields": fields})
        else:
            self._failures = 0

    def close(self, *, failed: bool) -> None:
        """Close the tracker; log a failure."""
        try:
            self._tracker.close(failed=failed)
        except Exception as error:  # noqa: BLE001 - as above
            log.warning("tracker not closed", extra={"fields": {"tracker": self._name, "error": _short(error)}})


class _RayMetrics:
    """Gauges ``lsr_prod_train_<name>`` on Ray's Prometheus endpoint, tagged with the run."""

    def __init__(self, run: str) -> None:
        from ray.util.metrics import Gauge

        self._make, self._run = Gauge, run
        self._gauges: dict[str, Any] = {}

    def report(self, step: int, values: Mapping[str, float], now: float) -> None:  # noqa: ARG002 - Ray uses its own clock
        for name, value in {**values, "step": float(step)}.items():
            if name not in self._gauges:
                metric = f"lsr_prod_train_{re.sub('[^A-Za-z0-9_]', '_', name)}"
                self._gauges[name] = self._make(metric, f"{name} of a training", tag_keys=("run",))
            self._gauges[name].set(value, tags={"run": self._run})

    def close(self, *, failed: bool) -> None:
        """Keep the last values until the process ends."""


def _short(error: Exception) -> str:
    return logs.without_credentials(" ".join(str(error).split()))[:300]
