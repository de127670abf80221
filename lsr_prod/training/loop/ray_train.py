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
from lsr_prod.config.training import LoopSettings, TrainSettings
from lsr_prod.errors import LsrError, WorkersLostError
from lsr_prod.logs import get_log
from lsr_prod.storage import Store, artifacts, is_remote
from lsr_prod.storage.formats.digests import FileDigest
from lsr_prod.training.loop import result, worker, worker_job
from lsr_prod.training.loop.checkpoint import RECORD_FILE, file_system
from lsr_prod.training.observers.progress import shown_progress
from lsr_prod.training.query_weights import initial_weights

log = get_log(__name__)

_CHECKPOINTS = 2
_COLLECTIVE_TIMEOUT_S = "7200"  # other workers wait while the first one validates
_POLL_S = "0.5"  # delay until a dead worker or the end is noticed


def run_loop(stage: LoopSettings, run: worker_job.StageRun, inputs: worker_job.LoopInputs) -> dict[str, Any]:
    """Train a stage to its end, save the model and return a flat summary; needs a connection to Ray."""
    checkpoint = _train(stage, run, inputs)
    encoder = worker_job.load_start(artifacts.fetch_artifact(run.work, f"models/{run.start}"), stage)
    if inputs.term_counts is not None and encoder.card.query_encoder == "idf":
        encoder.query_weights = initial_weights(encoder, inputs.term_counts, run.work)
    return result.save_result(encoder, checkpoint, stage, run.name, run.output)


def _train(stage: LoopSettings, run: worker_job.StageRun, inputs: worker_job.LoopInputs) -> Checkpoint:
    """Run Ray Train until it ends; a dead controller is replaced, and resumes from the last checkpoint."""
    train, stage = run.train.model_copy(update={"work": run.work.location}), worker_job.with_absolute_paths(stage)
    run = replace(run, train=train)
    files, folder = file_system(run.work) or pyarrow.fs.LocalFileSystem(), f"{_runs(run.work)}/{run.name}"
    os.environ.setdefault("RAY_TRAIN_COLLECTIVE_TIMEOUT_S", _COLLECTIVE_TIMEOUT_S)
    os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", _POLL_S)
    lost = 0
    with shown_progress(stage.stage) as progress:
        while True:
            path = find_checkpoint(files, folder, name=run.name)
            job = worker_job.WorkerJob(stage, run, inputs, progress, None if path is None else Checkpoint(path, files))
            trainer = result.RayTrainer(
                partial(worker.train_worker, job),  # to unpickle a config, the controller would import torch
                scaling_config=_scaling(train),
                run_config=_run_config(run),
            )
            others = result.held_groups()
            try:
                ended = cast("result.Result", trainer.fit())
            except TrainingFailedError as error:
                raise our_error(error, folder) or WorkersLostError(
                    f"training processes failed more than train.max_failures ({train.max_failures}) times; the last "
                    f"error: {describe(error)}"
                ) from error
            except ray.exceptions.RayActorError as error:
                result.release_groups(result.held_groups() - others)
                lost += 1
                if 0 <= train.max_failures < lost:
                    raise WorkersLostError(f"Ray Train's controller died {lost} times; {describe(error)}") from error
                log.warning("Ray Train's controller died", extra={"fields": {"times": lost, "error": describe(error)}})
                continue
            if ended.return_value is not None:
                raise cast("LsrError", ended.return_value)
            remove_strays(files, folder)
            assert ended.checkpoint is not None
            return ended.checkpoint


def _scaling(train: TrainSettings) -> ScalingConfig:
    assert train.workers is not None  # the driver chose all resources
    assert train.cpus_per_worker is not None
    resources: dict[str, float] = {"CPU": train.cpus_per_worker}
    if train.use_gpu:
        resources["GPU"] = 1
    workers: Any = train.workers if train.min_workers is None else (train.min_workers, train.workers)
    return ScalingConfig(num_workers=workers, use_gpu=bool(train.use_gpu), resources_per_worker=resources)


def _run_config(run: worker_job.StageRun) -> RunConfig:
    return RunConfig(
        name=run.name,
        storage_path=_runs(run.work),
        storage_filesystem=file_system(run.work),
        failure_config=FailureConfig(max_failures=run.train.max_failures),
        checkpoint_config=CheckpointConfig(num_to_keep=_CHECKPOINTS),
    )


def _runs(work: Store) -> str:
    location = work.child("runs").location
    return location.partition("://")[2] if is_remote(location) else location


# Resumption without Ray Train's list of checkpoints.
#
# Ray Train rewrites its list in place at every checkpoint. A kill or a full disk at that moment leaves a truncated
# list, with which no controller starts. Checkpoints are self-describing, so the newest complete one is found without
# the list.


def find_checkpoint(files: FileSystem, run: str, *, name: str) -> str | None:
    """Return the newest complete checkpoint of a run whose list is missing or damaged; delete a damaged list.

    None: there is no checkpoint, or the list is valid and Ray Train resumes by itself.
    """
    steps = {path: _step_of_complete(files, path, name) for path in _folders(files, run)}
    complete = {path: step for path, step in steps.items() if step is not None}
    listed = _listed(files, f"{run}/{result.CHECKPOINT_LIST}")
    if listed is not None and all(f"{run}/{folder}" in complete for folder in listed):
        return None
    newest = max(complete, key=lambda path: (complete[path], path), default=None)
    if _size(files, f"{run}/{result.CHECKPOINT_LIST}") is not None:
        files.delete_file(f"{run}/{result.CHECKPOINT_LIST}")
        log.warning("damaged list of checkpoints replaced", extra={"fields": {"run": name, "resumes_from": newest}})
    return newest


def remove_strays(files: FileSystem, run: str) -> None:
    """Delete incomplete checkpoints of interrupted runs; requires a valid list and no running worker."""
    listed = _listed(files, f"{run}/{result.CHECKPOINT_LIST}") or set()
    for path in _folders(files, run):
        if listed and path.rpartition("/")[2] not in listed:
            files.delete_dir(path)


def _folders(files: FileSystem, run: str) -> list[str]:
    return [
        one.path
        for one in files.get_file_info(FileSelector(run, allow_not_found=True))
        if one.type == FileType.Directory and one.base_name.startswith(result.CHECKPOINT_PREFIX)
    ]


def _listed(files: FileSystem, path: str) -> set[str] | None:
    """Return the folder names in the list; None: the list is missing or damaged."""
    try:
        return result.listed_checkpoints(_read_json(files, path))
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
