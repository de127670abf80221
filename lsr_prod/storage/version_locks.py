"""Locks of the versions of an index folder that are read, so that retention does not delete them.

A reader holds a shared lock of the operating system (flock) on the file of its version. The lock ends with the process,
however the process ends, and needs only the right to read. Readers of an object store hold no lock: they copy a version
before they read it.
"""

import fcntl
import os
from pathlib import Path

from lsr_prod import errors, logs

log = logs.get_log(__name__)


def lock_version(index: Path, sha: str) -> int | None:
    """Keep a version from retention until the returned descriptor is closed.

    Returns:
        A file descriptor; None: the file system supports no locks, and only the age of the version protects it.
    """
    path = _path(index, sha)
    gone = f"{path} is missing; publish another version"
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise errors.ArtifactError(gone) from error
    except OSError as error:
        raise errors.StorageError(f"{path} could not be opened ({error}); fix the disk, then run again") from error
    kept = False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)  # retention holds it for an instant
        kept = os.fstat(descriptor).st_nlink > 0
    except OSError as error:
        log.warning("version cannot be locked", extra={"fields": {"version": sha, "reason": str(error)}})
        return None
    finally:
        if not kept:
            os.close(descriptor)
    if not kept:
        raise errors.ArtifactError(gone)
    return descriptor


def is_read(index: Path, sha: str) -> bool:
    """Return whether a process of this or, by a network file system, another machine has the version open."""
    try:
        descriptor = _lock_alone(_path(index, sha))
    except FileNotFoundError:
        return False
    if descriptor is None:
        return True
    os.close(descriptor)
    return False


def delete_unless_read(path: Path, horizon: float) -> bool:
    """Delete the file of a version unless it is read or was touched at or after ``horizon``, seconds since 1970."""
    descriptor = _lock_alone(path)
    if descriptor is None:
        return False
    try:
        if os.fstat(descriptor).st_mtime >= horizon:
            return False
        path.unlink()
        return True
    finally:
        os.close(descriptor)


def _lock_alone(path: Path) -> int | None:
    """Return a descriptor with an exclusive lock; None: the version is read."""
    descriptor = _open(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError as error:
        os.close(descriptor)
        raise errors.StorageError(
            f"{path} cannot be locked ({error}), so readers of old versions are unknown; keep the index on a file "
            "system with locks, or in an object store"
        ) from error
    return descriptor


def _open(path: Path) -> int:
    """Open for writing if that is allowed: a network file system locks no others."""
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except PermissionError:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def _path(index: Path, sha: str) -> Path:
    return index / "versions" / f"{sha}.json"
