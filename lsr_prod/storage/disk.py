"""Errors of local disks as one sentence that names the file and the remedy, whichever library reports them."""

import errno
import os
import re
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lsr_prod.errors import DiskFullError, LsrError, StorageError

_NAME = r"(^|/)\.([^/]+)\.[0-9a-f]{32}\.tmp"
_LAST, _ANY = re.compile(f"{_NAME}$"), re.compile(f"{_NAME}(?=/|$)")
_REMEDIES = {
    errno.ENOSPC: "free space or inodes on its disk",
    errno.EDQUOT: "free space on its disk, or raise the quota",
    errno.EROFS: "mount its disk for writing",
    errno.EIO: "fix its disk",
}
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)  # repeating the work at once would fail again
# Libraries in Rust and Arrow report the number of the operating system in their text only. "os error" is of Rust's
# standard library, which Tantivy prints in its form for developers.
_NUMBER = re.compile(r"\(os error (\d+)\)|\bOs \{ code: (\d+), kind: |\[errno (\d+)\]", re.IGNORECASE)
# Tantivy's text where a thread failed to write earlier: neither the number nor the text of that error is kept.
_THREAD_FAILED = "A worker thread encountered an error (io::Error most likely)"


def draft_name(name: str) -> str:
    """Return a new private name for an unfinished file or folder that will be called ``name``."""
    return f".{name}.{uuid.uuid4().hex}.tmp"


def is_draft(name: str) -> bool:
    """Return whether a name, with or without its folder, is that of a draft."""
    return _LAST.search(name) is not None


def final_name(path: str) -> str:
    """Return a path with the names that its drafts will get."""
    return _ANY.sub(r"\1\2", path)


def disk_failure(error: OSError, path: Path | str) -> StorageError:
    """Return the error to raise for a file that cannot be written."""
    number = _number(error)
    kind = DiskFullError if number in _FULL else StorageError
    remedy = _REMEDIES.get(number or 0, "fix the disk")
    return kind(f"{final_name(str(path))} cannot be written ({_short(error)}); {remedy}, then run again")


def disk_error(error: BaseException | None, place: Path | str) -> StorageError | None:
    """Return the error to raise for one by which a disk is full, read-only or broken; None for others and for none."""
    found = error
    while found is not None:
        if isinstance(found, LsrError):
            return found if isinstance(found, DiskFullError) else None
        if (number := _number(found)) in _REMEDIES:
            named = found.filename if isinstance(found, OSError) else None
            path = named if isinstance(named, str) else place
            return disk_failure(OSError(number, os.strerror(number or 0)), path)
        if _THREAD_FAILED in str(found):
            return StorageError(
                f"{place} cannot be written (a thread of Tantivy failed, most likely because its disk is full); free "
                "space on its disk or fix it, then run again"
            )
        found = found.__cause__
    return None


@contextmanager
def writing(place: Path | str) -> Iterator[None]:
    """Turn errors of the disk inside the block, also those of libraries, into ``StorageError``; others pass."""
    try:
        yield
    except LsrError:
        raise
    except Exception as error:
        failure = disk_error(error, place)
        if failure is None:
            raise
        raise failure from error


@contextmanager
def scratch_folder(*, prefix: str = "lsr_prod-", parent: Path | None = None) -> Iterator[Path]:
    """Create a temporary folder, and delete it at the end of the block."""
    try:
        place = parent or tempfile.gettempdir()
    except FileNotFoundError as error:  # it tries to write a file to each candidate
        raise DiskFullError(f"{error.strerror}; free space there, or set TMPDIR to a folder with room") from error
    with (
        writing(f"scratch in {place}"),
        tempfile.TemporaryDirectory(prefix=prefix, dir=place, ignore_cleanup_errors=True) as folder,
    ):
        yield Path(folder)


def _number(error: BaseException) -> int | None:
    """Return the number of the operating system for an error; None: it has none."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    match = _NUMBER.search(str(error))
    return next(int(number) for number in match.groups() if number) if match else None


def _short(error: OSError) -> str:
    return f"[Errno {error.errno}] {error.strerror}" if error.strerror else str(error)
