"""Trackers of the curves of a training: TensorBoard, MLflow, Weights & Biases."""

import importlib
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lsr_prod.config.language import WatchSettings
from lsr_prod.errors import ConfigError, MissingExtraError
from lsr_prod.training.observers.reports import Tracker

_MLFLOW_DEFAULTS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}
_KEY = "WANDB_API_KEY"
_SECONDS = 60  # until an unreachable server is given up


def check_installed(settings: WatchSettings) -> None:
    """Check that the configured trackers are installed."""
    if settings.tensorboard is not None:
        _import_tensorboard()
    if settings.mlflow is not None:
        _import_mlflow()
    if settings.wandb is not None:
        _import_wandb()


def openers(settings: WatchSettings, run: str, resumed_at: int | None, place: Path) -> dict[str, Callable[[], Tracker]]:
    """Return what opens each configured tracker, by name."""
    found: dict[str, Callable[[], Tracker]] = {}
    if (folder := settings.tensorboard) is not None:
        found["tensorboard"] = lambda: _TensorBoard(Path(folder) / run, resumed_at)
    if (uri := settings.mlflow) is not None:
        found["mlflow"] = lambda: _Mlflow(uri, run)
    if (project := settings.wandb) is not None:
        found["wandb"] = lambda: _WeightsAndBiases(project, run, place)
    return found


class _TensorBoard:
    """Event file in the folder of the run."""

    def __init__(self, folder: Path, resumed_at: int | None) -> None:
        module = _import_tensorboard()
        purge = 0 if resumed_at is None else resumed_at + 1
        self._writer = module.SummaryWriter(str(folder), purge_step=purge)

    def report(self, step: int, values: Mapping[str, float], now: float) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step, walltime=now)
        self._writer.flush()

    def close(self, *, failed: bool) -> None:  # noqa: ARG002 - event files have no status
        self._writer.close()


class _Mlflow:
    """Run of this name in the experiment ``lsr_prod``; an existing run is continued."""

    def __init__(self, uri: str, run: str) -> None:
        self._module = _import_mlflow()
        self._client = self._module.MlflowClient(uri)
        experiment = self._client.get_experiment_by_name("lsr_prod")
        number = experiment.experiment_id if experiment else self._client.create_experiment("lsr_prod")
        found = self._client.search_runs([number], filter_string=f"tags.lsr_run = '{run}'", max_results=1)
        if found:
            self._run = found[0].info.run_id
            self._client.update_run(self._run, status="RUNNING")
        else:
            self._run = self._client.create_run(number, run_name=run, tags={"lsr_run": run}).info.run_id

    def report(self, step: int, values: Mapping[str, float], now: float) -> None:
        metrics = [
            self._module.entities.Metric(_metric_name(name), value, int(now * 1000), step)
            for name, value in values.items()
        ]
        self._client.log_batch(self._run, metrics)

    def close(self, *, failed: bool) -> None:
        self._client.set_terminated(self._run, "FAILED" if failed else "FINISHED")


def _metric_name(name: str) -> str:
    """Replace characters that MLflow does not allow in names."""
    return re.sub(r"[^\w\-. :/]", "_", name)


def _import_tensorboard() -> Any:
    return _import("tensorboard", "torch.utils.tensorboard", "tensorboard")


def _import_mlflow() -> Any:
    # An unreachable server delays the training for seconds, not minutes.
    for name, value in _MLFLOW_DEFAULTS.items():
        os.environ.setdefault(name, value)
    return _import("mlflow", "mlflow", "mlflow-skinny")


def _import(field: str, module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"watch.{field}", f"{package} is not installed", f"run pip install {package}, or leave it unset"
        ) from error


class _WeightsAndBiases:
    """Run of this name in a project; a run that is resumed is continued.

    The key comes from the environment (``WANDB_API_KEY``) or from ``wandb login``, and ``WANDB_MODE=offline`` keeps
    everything on the disk. Only the values of reports are sent: no code, no command line, nothing about the machine.
    Steps must increase, so steps that are repeated after a resumption are dropped.
    """

    def __init__(self, project: str, run: str, folder: Path) -> None:
        """Open the run."""
        wandb = _import_wandb()
        entity, _, name = project.rpartition("/")
        settings = wandb.Settings(
            silent=True, console="off", disable_git=True, disable_code=True, disable_job_creation=True, save_code=False,
            x_disable_meta=True, x_disable_machine_info=True, x_disable_stats=True, init_timeout=_SECONDS,
        )  # fmt: skip
        place = os.environ.get("WANDB_DIR") or str(folder)
        try:
            self._run: Any = wandb.init(
                project=name, entity=entity or None, id=run, name=run, dir=place, resume="allow", settings=settings
            )
        except Exception as error:  # noqa: BLE001 - raised again
            raise RuntimeError(_without_key(str(error))) from None  # the cause may contain the key

    def report(self, step: int, values: Mapping[str, float], now: float) -> None:  # noqa: ARG002 - the run has its own clock
        """Send the values of a step."""
        try:
            self._run.log(dict(values), step=step)
        except Exception as error:  # noqa: BLE001 - raised again
            raise RuntimeError(_without_key(str(error))) from None

    def close(self, *, failed: bool) -> None:
        """End the run, and wait until everything is sent or on the disk."""
        self._run.finish(exit_code=int(failed))


def _import_wandb() -> Any:
    """Return the package."""
    try:
        import wandb
    except ImportError as error:
        raise MissingExtraError("wandb", "wandb") from error
    return wandb


def _without_key(text: str) -> str:
    key = os.environ.get(_KEY, "")
    return text.replace(key, "...") if key else text
