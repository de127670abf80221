"""Errors of real Ray tasks and actors reach the caller as one line of lsr_prod, and the command as an exit code."""

import errno
import logging
import os
import pickle
import threading
import time
from typing import Any

import pytest
import ray
from ray.exceptions import RayTaskError
from ray.train import ControllerError, WorkerGroupError

from lsr_prod.cluster.tasks import Needs, describe, our_error, run_tasks, worker_errors
from lsr_prod.errors import (
    ArtifactError,
    ConfigError,
    DiskFullError,
    LsrError,
    MissingExtraError,
    SourceError,
    StorageError,
    WorkerError,
)
from lsr_prod.jobs.terminal.shell import exit_code

OURS = [
    ConfigError("encode.bundle", "bundle.json is missing", "export the model"),
    MissingExtraError("onnxruntime", "cpu"),
    ArtifactError("/bundle: bundle.json is missing"),
    StorageError("s3://b/x could not be read"),
    DiskFullError("/x cannot be written; free space"),
]


def fail(how: str) -> str:
    """Fail in this process."""
    if how == "exit":
        os._exit(3)
    if how == "ours":
        raise OURS[0]
    if how == "theirs":
        raise ValueError("a value\nin two lines of the user")
    if how == "no pickle":
        raise RuntimeError(threading.Lock())
    return how


@pytest.mark.parametrize("error", OURS, ids=lambda error: type(error).__name__)
def test_deliberate_error_survives_pickling(error: LsrError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (str(again), vars(again)) == (str(error), vars(error))


@pytest.mark.long
def test_tasks_yield_results_with_their_numbers(ray_local: None) -> None:
    assert sorted(run_tasks(fail, [("a",), ("b",)], task="a test")) == [(0, "a"), (1, "b")]
    assert list(run_tasks(fail, [], task="a test")) == []


def test_deliberate_error_of_a_task_is_raised_as_it_is(ray_local: None) -> None:
    with pytest.raises(ConfigError) as raised:
        list(run_tasks(fail, [("ours",)], task="a test"))
    assert type(raised.value) is ConfigError
    assert raised.value.field == "encode.bundle"


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("theirs", "ValueError: a value in two lines of the user"),
        ("exit", "WorkerCrashedError"),
        ("no pickle", "RayError: "),
    ],
)
def test_other_error_of_a_task_names_task_node_and_error(
    ray_local: None, how: str, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, logger="lsr_prod"), pytest.raises(WorkerError) as raised:
        list(run_tasks(fail, [(how,)], task="building a shard", needs=Needs(retries=0)))
    line = str(raised.value)
    assert line.startswith("building a shard failed: ")
    assert words in line
    assert "\n" not in line
    if how != "exit":
        assert f"(node {ray.util.get_node_ip_address()})" in line
        (record,) = [record for record in caplog.records if vars(record)["event"] == "worker failed"]
        assert "in fail" in record.fields["traceback"]  # type: ignore[attr-defined]


def test_unfinished_tasks_are_cancelled_after_an_error(ray_local: None) -> None:
    began = time.monotonic()
    with pytest.raises(WorkerError):
        list(run_tasks(_fail_or_sleep, [(0,), *((60,) for _ in range(4))], task="a test"))
    assert time.monotonic() - began < 30


def _fail_or_sleep(seconds: float) -> None:
    if not seconds:
        raise ValueError("now")
    time.sleep(seconds)


@ray.remote(num_cpus=0)
class _Actor:
    def run(self, how: str) -> str:
        return fail(how)


class _BrokenActor:
    def __init__(self) -> None:
        raise ArtifactError("bundle.json is missing")

    def run(self) -> None:
        pass


@pytest.mark.long
@pytest.mark.parametrize(("how", "words"), [("theirs", "ValueError"), ("exit", "actor died")])
def test_error_of_an_actor_names_task_and_error(ray_local: None, how: str, words: str) -> None:
    with pytest.raises(WorkerError, match=f"a test failed: .*{words}.*node ") as raised, worker_errors("a test"):
        ray.get(_Actor.remote().run.remote(how))
    assert "\n" not in str(raised.value)


@pytest.mark.long
def test_error_of_a_constructor_is_raised_as_it_is(ray_local: None) -> None:
    broken: Any = ray.remote(num_cpus=0)(_BrokenActor)
    with pytest.raises(ArtifactError, match=r"^bundle\.json is missing$"), worker_errors("a test"):
        ray.get(broken.remote().run.remote())


def test_timeout_of_ray_is_a_worker_error(ray_local: None) -> None:
    sleep: Any = ray.remote(num_cpus=0)(_fail_or_sleep)
    with pytest.raises(WorkerError, match="a test failed: GetTimeoutError"), worker_errors("a test"):
        ray.get(sleep.remote(5), timeout=0.01)


def test_deliberate_error_is_found_below_other_errors() -> None:
    ours, outer = SourceError("the file is gone"), RuntimeError("failed")
    outer.__cause__ = RayTaskError("task", "traceback", ours).as_instanceof_cause()
    assert our_error(outer) is ours
    outer.__cause__ = ValueError("theirs")
    assert our_error(outer) is None


def test_full_disk_of_a_worker_is_a_deliberate_error() -> None:
    theirs = RayTaskError("task", "traceback", OSError(errno.ENOSPC, "full", "/out/x")).as_instanceof_cause()
    found = our_error(theirs)
    assert type(found) is DiskFullError
    assert str(found).startswith("/out/x cannot be written ([Errno 28] No space left on device); free space")
    unnamed = ControllerError(OSError(errno.ENOSPC, "Error writing bytes to file"))
    assert str(our_error(unnamed, "/work/runs/x")).startswith("/work/runs/x cannot be written ([Errno 28]")
    named = DiskFullError("/runs cannot be written ([Errno 28] No space left on device); free space")
    assert our_error(WorkerGroupError(f"failed: {named}", {0: named})) is named


def test_error_of_a_training_worker_is_found() -> None:
    ours = SourceError("the file is gone")
    assert our_error(WorkerGroupError("failed", {0: ValueError("theirs"), 1: ours})) is ours
    assert our_error(ControllerError(RayTaskError("task", "traceback", ours).as_instanceof_cause())) is ours
    assert our_error(theirs := WorkerGroupError("failed", {0: ValueError("theirs")})) is None
    assert describe(theirs) == "ValueError: theirs"


@pytest.mark.usefixtures("caplog")  # "worker failed" is an event of the log, which no command has set up
@pytest.mark.parametrize(("how", "code", "words"), [("ours", 2, "encode.bundle: "), ("theirs", 1, "WorkerError: ")])
def test_command_prints_one_line_for_any_error_of_ray(
    ray_local: None, capsys: pytest.CaptureFixture[str], how: str, code: int, words: str
) -> None:
    """The last line of defense: a place that calls ``ray.get`` without ``worker_errors``."""
    task: Any = ray.remote(num_cpus=0)(fail)
    assert exit_code("encode", lambda: ray.get(task.remote(how))) == code
    line = capsys.readouterr().err
    assert line.startswith(f"lsr-prod encode{'' if code == 2 else ' failed'}: {words}")
    assert line.count("\n") == 1
    assert "Traceback" not in line
