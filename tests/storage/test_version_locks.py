"""Locks of versions: a version that is read is not deleted, and a version that is deleted is not opened."""

import errno
import fcntl
import os
from pathlib import Path

import pytest

from lsr_prod.errors import ArtifactError, StorageError
from lsr_prod.storage.version_locks import delete_unless_read, is_read, lock_version


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """Return an index folder with the file of version ``v``."""
    (tmp_path / "versions").mkdir()
    (tmp_path / "versions" / "v.json").touch()
    return tmp_path


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_version_is_read_until_its_descriptor_is_closed_and_not_deleted_then(index: Path) -> None:
    path, before = index / "versions" / "v.json", descriptors()
    assert not is_read(index, "v")
    lock = lock_version(index, "v")
    assert lock is not None
    other = lock_version(index, "v")  # readers share it
    assert other is not None
    assert is_read(index, "v")
    assert not delete_unless_read(path, path.stat().st_mtime + 1)
    os.close(lock)
    assert is_read(index, "v")
    os.close(other)
    assert not is_read(index, "v")
    assert not delete_unless_read(path, path.stat().st_mtime)  # it was touched at the horizon
    assert path.exists()
    assert delete_unless_read(path, path.stat().st_mtime + 1)
    assert not path.exists()
    with pytest.raises(FileNotFoundError):
        delete_unless_read(path, 0)
    assert not is_read(index, "v")
    assert descriptors() == before


def test_version_that_is_missing_or_deleted_before_its_lock_is_an_artifact_error(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, flock = descriptors(), fcntl.flock
    with pytest.raises(ArtifactError, match=r"w.json is missing; publish another version"):
        lock_version(index, "w")

    def late(descriptor: int, operation: int) -> None:
        (index / "versions" / "v.json").unlink()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    with pytest.raises(ArtifactError, match=r"v.json is missing; publish another version"):
        lock_version(index, "v")
    assert descriptors() == before


def test_file_system_without_locks_keeps_readers_and_stops_retention(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = descriptors()

    def none(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "flock", none)
    assert lock_version(index, "v") is None
    for ask in (lambda: is_read(index, "v"), lambda: delete_unless_read(index / "versions" / "v.json", 1e12)):
        with pytest.raises(StorageError, match=r"v.json cannot be locked .*, so readers of old versions are unknown"):
            ask()
    assert (index / "versions" / "v.json").exists()
    assert descriptors() == before


def test_version_that_may_only_be_read_is_locked_and_one_that_cannot_be_opened_is_a_storage_error(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, whole = [], os.open

    def no_writing(path: Path, flags: int) -> int:
        if flags & os.O_RDWR:
            raise PermissionError
        opened.append(flags)
        return whole(path, flags)

    monkeypatch.setattr(os, "open", no_writing)
    assert not is_read(index, "v")
    assert opened == [os.O_RDONLY | os.O_CLOEXEC]

    def broken(_path: Path, _flags: int) -> int:
        raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr(os, "open", broken)
    with pytest.raises(StorageError, match=r"v.json could not be opened \(.*input/output error\); fix the disk"):
        lock_version(index, "v")
