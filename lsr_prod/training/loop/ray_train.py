"""Training loop on Ray Train.

After a kill at any moment, of a worker, of Ray Train's controller or of the whole job, the loop resumes from its last
checkpoint and ends with the same weights as an undisturbed run.
"""

import json
import os
from dataclasses import replace
from functools import partial
from typing import Any, cast

import pyarrow as pa
import pyarrow.fs
import ray
from pyarrow.fs import FileSelector, FileSystem, FileType
from ray.train import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, ScalingConfig, TrainingFailedError

from lsr_prod.cluster.tasks import describe, our_error
from lsr_prod.config.train import TrainSettings
from lsr_prod.errors import LsrError, WorkersLostError
from lsr_prod.logs import get_log
from lsr_prod.storage import Store, is_remote
from lsr_prod.storage.artifacts import fetch_artifact
from lsr_prod.storage.formats.digest import FileDigest
from lsr_prod.training.loop.checkpoint import RECORD_FILE, file_system
from lsr_prod.training.loop.job import LoopInputs, StageRun, WorkerJob, load_start, make_job
from lsr_prod.training.loop.result import (
    CHECKPOINT_LIST,
    CHECKPOINT_PREFIX,
    RayTrainer,
    Result,
    held_groups,
    listed_checkpoints,
    release_groups,
    save_result,
)
from lsr_prod.training.loop.worker import train_worker
from lsr_prod.training.observers.progress import shown_progress
from lsr_prod.training.query_weights import initial_weights
from lsr_prod.training.steps import LoopSettings

log = get_log(__name__)

_CHECKPOINTS = 2
_COLLECTIVE_TIMEOUT_S = "7200"  # other workers wait while the first one validates
_POLL_S = "0.5"  # delay until a dead worker or the end is noticed


def run_loop(stage: LoopSettings, run: StageRun, inputs: LoopInputs) -> dict[str, Any]:
    """Train a stage to its end and save the model; needs a connection to Ray.

    Returns:
        A flat summary: steps, last loss, last or best validation.
    """
    checkpoint = _train(stage, run.train, make_job(stage, run, inputs))
    encoder = load_start(fetch_artifact(run.work, f"models/{run.start}"), stage)
    if inputs.term_counts is not None and encoder.card.query_encoder == "idf":
        encoder.query_weights = initial_weights(encoder, inputs.term_counts, run.work)
    return save_result(encoder, checkpoint, stage, run.name, run.output)


def _train(stage: LoopSettings, train: TrainSettings, job: WorkerJob) -> Checkpoint:
    """Run Ray Train until it ends; a dead controller is replaced, and resumes from the last checkpoint."""
    os.environ.setdefault("RAY_TRAIN_COLLECTIVE_TIMEOUT_S", _COLLECTIVE_TIMEOUT_S)
    os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", _POLL_S)
    lost = 0
    with shown_progress(stage.stage) as progress:
        while True:
            current = replace(job, progress=progress, unlisted=_unlisted(job))
            trainer = RayTrainer(
                partial(train_worker, current),  # to unpickle a config, the controller would import torch
                scaling_config=_scaling(train),
                run_config=_run_config(train, job),
            )
            others = held_groups()
            try:
                result = cast("Result", trainer.fit())
            except TrainingFailedError as error:
                raise our_error(error, _run_folder(job)) or WorkersLostError(
                    f"training processes failed more than train.max_failures ({train.max_failures}) times; the last "
                    f"error: {describe(error)}"
                ) from error
            except ray.exceptions.RayActorError as error:
                release_groups(held_groups() - others)
                lost += 1
                if 0 <= train.max_failures < lost:
                    raise WorkersLostError(f"Ray Train's controller died {lost} times; {describe(error)}") from error
                log.warning("Ray Train's controller died", extra={"fields": {"times": lost, "error": describe(error)}})
                continue
            if result.return_value is not None:
                raise cast("LsrError", result.return_value)
            remove_strays(_files(job.work), _run_folder(job))
            assert result.checkpoint is not None
            return result.checkpoint


def _unlisted(job: WorkerJob) -> Checkpoint | None:
    files = _files(job.work)
    path = find_checkpoint(files, _run_folder(job), name=job.name)
    return None if path is None else Checkpoint(path, files)


def _scaling(train: TrainSettings) -> ScalingConfig:
    assert train.workers is not None  # the driver chose all resources
    assert train.cpus_per_worker is not None
    resources: dict[str, float] = {"CPU": train.cpus_per_worker}
    if train.use_gpu:
        resources["GPU"] = 1
    workers: Any = train.workers if train.min_workers is None else (train.min_workers, train.workers)
    return ScalingConfig(num_workers=workers, use_gpu=bool(train.use_gpu), resources_per_worker=resources)


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


# Resumption without Ray Train's list of checkpoints.
#
# Ray Train rewrites its list in place at every checkpoint. A kill or a full disk at that moment leaves a truncated
# list, with which no controller starts. Checkpoints are self-describing, so the newest complete one is found without
# the list.


def find_checkpoint(files: FileSystem, run: str, *, name: str) -> str | None:
    """Find the newest complete checkpoint of a run whose list is missing or damaged; delete a damaged list.

    Returns:
        Path of the checkpoint; None: there is none, or the list is valid and Ray Train resumes by itself.
    """
    complete = {
        path: step for path in _folders(files, run) if (step := _step_of_complete(files, path, name)) is not None
    }
    listed = _listed(files, f"{run}/{CHECKPOINT_LIST}")
    if listed is not None and all(f"{run}/{folder}" in complete for folder in listed):
        return None
    newest = max(complete, key=lambda path: (complete[path], path), default=None)
    if _size(files, f"{run}/{CHECKPOINT_LIST}") is not None:
        files.delete_file(f"{run}/{CHECKPOINT_LIST}")
        log.warning("damaged list of checkpoints replaced", extra={"fields": {"run": name, "resumes_from": newest}})
    return newest


def remove_strays(files: FileSystem, run: str) -> None:
    """Delete incomplete checkpoints of interrupted runs; requires a valid list and no running worker."""
    listed = _listed(files, f"{run}/{CHECKPOINT_LIST}") or set()
    for path in _folders(files, run):
        if listed and path.rpartition("/")[2] not in listed:
            files.delete_dir(path)


def _folders(files: FileSystem, run: str) -> list[str]:
    found = files.get_file_info(FileSelector(run, allow_not_found=True))
    return [one.path for one in found if one.type == FileType.Directory and one.base_name.startswith(CHECKPOINT_PREFIX)]


def _listed(files: FileSystem, path: str) -> set[str] | None:
    """Return the folder names in the list; None: the list is missing or damaged."""
    found = _read_json(files, path)
    try:
        return None if found is None else listed_checkpoints(found)
    except (KeyError, TypeError):
        return None


def _step_of_complete(files: FileSystem, folder: str, name: str) -> int | None:
    """Return the step of a complete checkpoint of the stage; None: of another stage, or incomplete."""
    record = _read_json(files, f"{folder}/{RECORD_FILE}")
    if record is None or record["name"] != name:
        return None
    parts = [FileDigest.from_json(file) for file in record["files"]]
    return int(record["step"]) if all(_size(files, f"{folder}/{one.path}") == one.size for one in parts) else None


def _size(files: FileSystem, path: str) -> int | None:
    (found,) = files.get_file_info([path])
    return found.size if found.type == FileType.File else None


def _read_json(files: FileSystem, path: str) -> Any:
    """Return the content of a JSON file; None: it is missing or damaged."""
    if _size(files, path) is None:
        return None
    with files.open_input_stream(path) as stream:
        data: pa.Buffer = stream.read()
    try:
        return json.loads(data)
    except ValueError:
        return None
