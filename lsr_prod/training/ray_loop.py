"""A training loop on Ray Train, and the model directory that it ends with.

Killed at any moment, in a worker, in Ray Train's controller or as a whole, it goes on from its last checkpoint, and
ends with the weights that an undisturbed run has.
"""

import logging
import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.fs
import ray
from ray.train import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, ScalingConfig, TrainingFailedError
from ray.train.v2.api.result import Result

from lsr_prod.config.language import LanguageSettings
from lsr_prod.config.train import FinetuneSettings, TrainSettings
from lsr_prod.errors import TrainingCollapsedError, WorkersLostError
from lsr_prod.model import SparseEncoder
from lsr_prod.storage import Store, is_remote
from lsr_prod.storage.folders import fetch_folder
from lsr_prod.training.board import shown_progress
from lsr_prod.training.checkpoint import REPORTS_FILE, read_checkpoint
from lsr_prod.training.checkpoint_store import file_system
from lsr_prod.training.frozen import freeze
from lsr_prod.training.loops import LoopInputs, LoopSettings, load_start
from lsr_prod.training.lora import add_lora, merge_lora
from lsr_prod.training.ray_trainer import RayTrainer
from lsr_prod.training.resumption import find_checkpoint, remove_strays
from lsr_prod.training.updates import load_weights
from lsr_prod.training.watch import read_log
from lsr_prod.training.worker import WorkerJob, train_worker

__all__ = ["run_loop"]

log = logging.getLogger(__name__)

_CHECKPOINTS = 2
_SUMMARISED = ("loss", "accuracy", "l0_query", "l0_document", "flops", "dead_terms", "docs_per_s")
_COLLECTIVE_TIMEOUT_S = "7200"  # the others wait while the first worker validates
_POLL_S = "0.5"  # until a worker that died, or the end, is noticed


def run_loop(
    stage: LoopSettings,
    train: TrainSettings,
    inputs: LoopInputs,
    *,
    work: Store,
    start: str,
    name: str,
    output: Path,
) -> dict[str, Any]:
    """Train; needs a connection to Ray.

    Args:
        stage: the settings of the stage.
        train: those of the whole chain.
        inputs: what the workers read from the work store.
        work: the work store.
        start: digest of the model directory, which lies in the work store as ``models/<start>``.
        name: digest of the stage; its checkpoints lie under ``runs/<name>``.
        output: the new model directory.

    Returns:
        A flat summary: steps, the last loss, the last or best validation.

    Raises:
        TrainingCollapsedError: vectors became empty or full, or the loss is no number.
        WorkersLostError: workers died more often than ``train.max_failures``.
    """
    result = _train(stage, train, _job(stage, train, inputs, work, start, name))
    return _finish(load_start(fetch_folder(work, f"models/{start}"), stage), result, stage, name, output)


def _job(
    stage: LoopSettings, train: TrainSettings, inputs: LoopInputs, work: Store, start: str, name: str
) -> WorkerJob:
    """What the workers are told."""
    reports = None
    if not is_remote(work.uri):
        reports = str(Path(work.location) / "runs" / name)
        Path(reports).mkdir(parents=True, exist_ok=True)
    return WorkerJob(
        stage=_with_absolute_paths(stage),
        name=name,
        work=Store(work.location, work.options),
        start=start,
        inputs=inputs,
        threads=max(1, int(train.cpus_per_worker)),
        use_gpu=train.use_gpu,
        reports=reports,
        board=None,
    )


def _with_absolute_paths(stage: LoopSettings) -> LoopSettings:
    """Ray gives each worker a working directory of its own."""
    changes: dict[str, Any] = {}
    if stage.watch.tensorboard is not None:
        watch = {"tensorboard": _absolute(stage.watch.tensorboard)}
        changes["watch"] = stage.watch.model_copy(update=watch)
    if isinstance(stage, FinetuneSettings) and stage.validation is not None:
        paths = {field: _absolute(getattr(stage.validation, field)) for field in ("corpus", "queries", "qrels")}
        changes["validation"] = stage.validation.model_copy(update=paths)
    return stage.model_copy(update=changes)


def _absolute(path: str) -> str:
    return path if is_remote(path) or "://" in path else str(Path(path).absolute())


def _train(stage: LoopSettings, train: TrainSettings, job: WorkerJob) -> Result:
    """Run Ray Train until it ends; a controller that dies is started again, and goes on from the last checkpoint."""
    os.environ.setdefault("RAY_TRAIN_COLLECTIVE_TIMEOUT_S", _COLLECTIVE_TIMEOUT_S)
    os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", _POLL_S)
    lost = 0
    with shown_progress(stage.stage) as board:
        while True:
            told = replace(job, board=board, unlisted=_unlisted(job))
            trainer = RayTrainer(
                partial(train_worker, told),  # the controller would unpickle a config, and import torch for it
                scaling_config=_scaling(train),
                run_config=_run_config(train, job),
            )
            try:
                result = trainer.fit()
            except TrainingFailedError as error:
                raise WorkersLostError(
                    f"training processes failed more than train.max_failures ({train.max_failures}) times; the last "
                    f"error: {_short(error)}"
                ) from error
            except ray.exceptions.RayActorError as error:
                lost += 1
                if 0 <= train.max_failures < lost:
                    raise WorkersLostError(f"Ray Train's controller died {lost} times; {_short(error)}") from error
                log.warning("the controller died", extra={"fields": {"times": lost, "error": _short(error)}})
                continue
            if result.return_value is not None:
                raise TrainingCollapsedError(result.return_value)
            remove_strays(_files(job.work), _run_folder(job))
            return result


def _unlisted(job: WorkerJob) -> Checkpoint | None:
    files = _files(job.work)
    path = find_checkpoint(files, _run_folder(job), name=job.name)
    return None if path is None else Checkpoint(path, files)


def _scaling(train: TrainSettings) -> ScalingConfig:
    resources: dict[str, float] = {"CPU": train.cpus_per_worker}
    if train.use_gpu:
        resources["GPU"] = 1
    workers: Any = train.workers if train.min_workers is None else (train.min_workers, train.workers)
    return ScalingConfig(num_workers=workers, use_gpu=train.use_gpu, resources_per_worker=resources)


def _run_config(train: TrainSettings, job: WorkerJob) -> RunConfig:
    return RunConfig(
        name=job.name,
        storage_path=_runs(job),
        storage_filesystem=file_system(job.work),
        failure_config=FailureConfig(max_failures=train.max_failures),
        checkpoint_config=CheckpointConfig(num_to_keep=_CHECKPOINTS),
    )


def _run_folder(job: WorkerJob) -> str:
    return f"{_runs(job)}/{job.name}"


def _runs(job: WorkerJob) -> str:
    location = job.work.child("runs").location
    return location.partition("://")[2] if is_remote(location) else location


def _files(work: Store) -> pyarrow.fs.FileSystem:
    return file_system(work) or pyarrow.fs.LocalFileSystem()


def _finish(encoder: SparseEncoder, result: Result, stage: LoopSettings, name: str, output: Path) -> dict[str, Any]:
    """Make the model directory of the last checkpoint, or of the best validation where that was asked for."""
    assert result.checkpoint is not None
    with result.checkpoint.as_directory() as folder:
        checkpoint = read_checkpoint(Path(folder), name=name)
        losses = last_reports(Path(folder) / REPORTS_FILE)
    if stage.scale.lora is not None:
        add_lora(encoder.model, stage.scale.lora)
    if isinstance(stage, LanguageSettings):
        freeze(encoder.model, stage.trained)  # what was frozen is in no checkpoint
    load_weights(encoder.model, checkpoint.tensors.get("best", checkpoint.tensors["weights"]))
    if stage.scale.lora is not None:
        merge_lora(encoder.model)
    encoder.save(output)
    best = checkpoint.state["best"]
    summary = {"steps": checkpoint.step, **losses}
    return summary if best["step"] is None else {**summary, "best_step": best["step"], "best": best["value"]}


def last_reports(path: Path) -> dict[str, Any]:
    """The last loss and activity, and the last validation, of a file of reports."""
    found: dict[str, Any] = {}
    for report in read_log(path):
        values = report["values"]
        found |= {key: values[key] for key in values if key in _SUMMARISED or key.startswith("validation/")}
    return found


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[-400:]
