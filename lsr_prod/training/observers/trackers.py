"""Trackers of the curves of a training: Ray's metrics, and those of ``lsr_prod_contrib.trackers``."""

import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from lsr_prod.config.language import WatchSettings
from lsr_prod.credentials import without_credentials
from lsr_prod.errors import ConfigError
from lsr_prod.extras import contrib
from lsr_prod.logs import get_log

log = get_log(__name__)

_REMEDY = "set one that is reachable, or leave it unset"


def check_watch(settings: WatchSettings) -> None:
    """Check that the configured trackers are installed, before anything is trained."""
    contrib("trackers").check_installed(settings)


def open_trackers(settings: WatchSettings, run: str, resumed_at: int | None, place: Path) -> "list[GuardedTracker]":
    """Open the configured trackers, and Ray's metrics in a process of Ray."""
    openers: dict[str, Callable[[], Tracker]] = contrib("trackers").openers(settings, run, resumed_at, place)
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
                raise ConfigError(f"watch.{name}", f"{name} cannot be opened ({_short(error)})", _REMEDY) from error
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
    return without_credentials(" ".join(str(error).split()))[:300]
