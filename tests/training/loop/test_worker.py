"""An error that another attempt would meet again is met by one worker, and returned by all that are started next."""

from types import SimpleNamespace
from typing import Any

import pytest
import ray

from lsr_prod.errors import ConfigError, DiskFullError, EncoderRaisedError, LsrError, StorageError
from lsr_prod.training.loop import worker
from lsr_prod.training.observers.progress import _Progress


class _Actor:
    """Calls of an actor, in this process."""

    def __init__(self) -> None:
        progress = _Progress()
        self.end = SimpleNamespace(remote=progress.end)
        self.ended = SimpleNamespace(remote=progress.ended)


def _fails(error: Exception) -> Any:
    def train(job: Any) -> None:
        raise error

    return train


@pytest.mark.parametrize(
    "error",
    [
        DiskFullError("runs cannot be written; free space"),
        ConfigError("watch.mlflow", "mlflow cannot be opened", "start it"),
        EncoderRaisedError("the model returned a weight that is not finite"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_error_that_comes_again_is_returned_by_the_workers_that_are_started_next(
    monkeypatch: pytest.MonkeyPatch, error: LsrError
) -> None:
    monkeypatch.setattr(ray, "get", lambda value: value)
    monkeypatch.setattr(worker, "_train", _fails(error))
    job: Any = SimpleNamespace(progress=_Actor())
    with pytest.raises(type(error)):
        worker.train_worker(job)
    monkeypatch.setattr(worker, "_train", _fails(AssertionError("trained again")))
    assert [worker.train_worker(job) for _ in range(2)] == [error, error]


def test_other_errors_of_a_store_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "get", lambda value: value)
    monkeypatch.setattr(worker, "_train", _fails(StorageError("the service is busy")))
    job: Any = SimpleNamespace(progress=_Actor())
    with pytest.raises(StorageError):
        worker.train_worker(job)
    monkeypatch.setattr(worker, "_train", lambda _: None)
    assert worker.train_worker(job) is None
