import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from lsr_prod.config.language import WatchSettings
from lsr_prod.errors import ConfigError
from lsr_prod.training.observers.reports import GuardedTracker, open_trackers


@pytest.fixture(autouse=True)
def _outside_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests before these may have left a connection."""
    monkeypatch.setattr("ray.is_initialized", lambda: False)


def test_tracker_error_hides_password_of_uri(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        open_trackers(WatchSettings(mlflow="nowhere://alice:hunter2@host/"), "run-1", None, tmp_path)
    assert "nowhere://...@host" in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_open_trackers_raises_config_error_for_new_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = WatchSettings(tensorboard=str(tmp_path / "tb"), mlflow="nowhere://x")
    with pytest.raises(ConfigError, match=r"watch.mlflow: mlflow cannot be opened \(.*nowhere://x.*\); set one"):
        open_trackers(settings, "run-1", None, tmp_path)
    trackers = open_trackers(settings, "run-1", 10, tmp_path)
    assert [vars(record)["event"] for record in caplog.records] == ["tracker not opened"]
    assert len(trackers) == 1, "a run that goes on does so without it"
    trackers[0].close(failed=False)


class Flaky:
    def __init__(self) -> None:
        self.asked: list[int] = []
        self.fails = True

    def report(self, step: int, values: Mapping[str, float], now: float) -> None:  # noqa: ARG002
        self.asked.append(step)
        if self.fails:
            raise ConnectionError("the server\n is away")

    def close(self, *, failed: bool) -> None:  # noqa: ARG002
        raise ConnectionError("still")


def test_guarded_tracker_backs_off_after_failures(caplog: pytest.LogCaptureFixture) -> None:
    tracker = Flaky()
    guarded = GuardedTracker("flaky", tracker)
    for step in range(20):
        guarded.report(step, {}, 0.0)
    assert tracker.asked == [0, 3, 8, 17]  # 2, 4, 8 reports are left out
    fields: list[dict[str, Any]] = [vars(record)["fields"] for record in caplog.records]
    assert fields[0] == {"tracker": "flaky", "step": 0, "error": "the server is away", "reports_skipped": 2}
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
    tracker.fails = False
    for step in range(20, 40):
        guarded.report(step, {}, 0.0)
    assert tracker.asked[4:] == [*range(34, 40)], "once it answers it gets every report again"
    guarded.close(failed=False)
    assert vars(caplog.records[-1])["event"] == "tracker not closed"


def test_ray_metrics_are_used_only_inside_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert open_trackers(WatchSettings(), "run-1", None, tmp_path) == []
    import ray
    from ray.util import metrics

    gauges: dict[str, float] = {}

    class Gauge:
        def __init__(self, name: str, description: str, tag_keys: tuple[str, ...]) -> None:  # noqa: ARG002
            assert tag_keys == ("run",)
            assert name not in gauges
            self.name = name
            gauges[name] = -1.0

        def set(self, value: float, tags: dict[str, str]) -> None:
            assert tags == {"run": "run-1"}
            gauges[self.name] = value

    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(metrics, "Gauge", Gauge)
    (tracker,) = open_trackers(WatchSettings(), "run-1", None, tmp_path)
    tracker.report(10, {"loss": 1.0, "validation/RR@10": 0.5}, 0.0)
    tracker.report(20, {"loss": 0.5}, 0.0)
    tracker.close(failed=False)
    assert gauges == {"lsr_prod_train_loss": 0.5, "lsr_prod_train_validation_RR_10": 0.5, "lsr_prod_train_step": 20.0}
