"""A full disk ends a training at once: it is met by one worker, and returned by all that are started next."""

from types import SimpleNamespace
from typing import Any

import pytest
import ray

from lsr_prod.errors import DiskFullError, StorageError
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


def test_worker_that_is_started_after_a_full_disk_returns_it(monkeypatch: pytest.MonkeyPatch) -> None:
    full = DiskFullError("runs cannot be written; free space")
    monkeypatch.setattr(ray, "get", lambda value: value)
    monkeypatch.setattr(worker, "_train", _fails(full))
    job: Any = SimpleNamespace(progress=_Actor())
    with pytest.raises(DiskFullError):
        worker.train_worker(job)
    monkeypatch.setattr(worker, "_train", _fails(AssertionError("trained again")))
    assert [worker.train_worker(job) for _ in range(2)] == [full, full]


def test_other_errors_of_a_store_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "get", lambda value: value)
    monkeypatch.setattr(worker, "_train", _fails(StorageError("the service is busy")))
    job: Any = SimpleNamespace(progress=_Actor())
    with pytest.raises(StorageError):
        worker.train_worker(job)
    monkeypatch.setattr(worker, "_train", lambda _: None)
    assert worker.train_worker(job) is None
