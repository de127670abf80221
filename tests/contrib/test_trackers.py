"""Trackers with the real packages, on local folders."""

import sys
from pathlib import Path

import pytest

from lsr_prod.config.language import WatchSettings
from lsr_prod.errors import ConfigError
from lsr_prod.training.observers.reports import check_watch, open_trackers


@pytest.fixture(autouse=True)
def _outside_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests before these may have left a connection."""
    monkeypatch.setattr("ray.is_initialized", lambda: False)


def _absent(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    for name in [name for name in sys.modules if name == module or name.startswith(f"{module}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)


@pytest.mark.parametrize(
    ("field", "module", "package"),
    [("tensorboard", "tensorboard", "tensorboard"), ("mlflow", "mlflow", "mlflow-skinny")],
)
def test_check_watch_rejects_missing_package(
    field: str, module: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _absent(monkeypatch, module)
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard.writer", raising=False)
    with pytest.raises(ConfigError, match=f"watch.{field}: {package} is not installed; run pip install {package}"):
        check_watch(WatchSettings.model_validate({field: "somewhere"}))
    check_watch(WatchSettings())


def test_tensorboard_contains_every_value_once_after_resumption(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    settings = WatchSettings(tensorboard=str(tmp_path))
    (first,) = open_trackers(settings, "run-1", None, tmp_path)
    for step in (10, 20, 30):
        first.report(step, {"loss": float(step), "validation/RR@10": 0.5}, 1000.0 + step)
    first.close(failed=True)
    (second,) = open_trackers(settings, "run-1", 20, tmp_path)
    second.report(30, {"loss": 31.0}, 2000.0)
    second.close(failed=False)
    events = EventAccumulator(str(tmp_path / "run-1")).Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [(10, 10.0), (20, 20.0), (30, 31.0)]
    assert events.Scalars("loss")[0].wall_time == 1010.0
    assert "validation/RR@10" in events.Tags()["scalars"]


def test_mlflow_continues_run_after_resumption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    from mlflow import MlflowClient

    uri = (tmp_path / "runs").as_uri()
    settings = WatchSettings(mlflow=uri)
    (first,) = open_trackers(settings, "run-1", None, tmp_path)
    first.report(10, {"loss": 2.5, "validation/RR@10": 0.25, "grad_norm": float("inf")}, 1000.0)
    first.close(failed=True)
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("lsr_prod")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FAILED"
    (second,) = open_trackers(settings, "run-1", 10, tmp_path)
    second.report(20, {"loss": 1.5}, 2000.0)
    second.close(failed=False)
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.status, run.info.run_name) == ("FINISHED", "run-1")
    losses = client.get_metric_history(run.info.run_id, "loss")
    assert [(one.step, one.value, one.timestamp) for one in losses] == [(10, 2.5, 1_000_000), (20, 1.5, 2_000_000)]
    assert run.data.metrics["validation/RR_10"] == 0.25
