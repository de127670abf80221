"""Local files: listings with sizes and times, reads that check the sha256, drafts, and errors of disks.

An error is one sentence that names the file and the remedy, whichever library reports it.
"""

import errno
import hashlib
import os
import re
import shutil
import stat
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lsr_prod.errors import ConfigError, DigestMismatchError, DiskFullError, LsrError, StorageError

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


def disk_failure(error: OSError, path: Path | str) -> StorageError:
    """Return the error to raise for a file that cannot be written."""
    number = _number(error)
    kind = DiskFullError if number in _FULL else StorageError
    remedy = _REMEDIES.get(number or 0, "fix the disk")
    named = _ANY.sub(r"\1\2", str(path))  # with the names that its drafts will get
    return kind(f"{named} cannot be written ({_short(error)}); {remedy}, then run again")


def disk_error(error: BaseException | None, place: Path | str) -> StorageError | None:
    """Return the error to raise for one by which a disk is full, read-only or broken; None for others and for none."""
    found = error
    while found is not None:
        if isinstance(found, LsrError):
            return found if isinstance(found, DiskFullError) else None
        if (number := _number(found)) in _REMEDIES:
            named = found.filename if isinstance(found, OSError) else None
            return disk_failure(OSError(number, os.strerror(number or 0)), named if isinstance(named, str) else place)
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
    """Create a temporary folder, and delete it at the end of the block; a forked child does not delete it."""
    try:
        place = parent or tempfile.gettempdir()
    except FileNotFoundError as error:  # it tries to write a file to each candidate
        raise DiskFullError(f"{error.strerror}; free space there, or set TMPDIR to a folder with room") from error
    with writing(f"scratch in {place}"):
        folder, process = tempfile.mkdtemp(prefix=prefix, dir=place), os.getpid()
        try:
            yield Path(folder)
        finally:
            if os.getpid() == process:
                shutil.rmtree(folder, ignore_errors=True)


def _number(error: BaseException) -> int | None:
    """Return the number of the operating system for an error; None: it has none."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    match = _NUMBER.search(str(error))
    return next(int(number) for number in match.groups() if number) if match else None


def _short(error: OSError) -> str:
    return f"[Errno {error.errno}] {error.strerror}" if error.strerror else str(error)


@dataclass(frozen=True, slots=True)
class Entry:
    """An object in a listing.

    Attributes:
        name: path inside the folder, with forward slashes.
        size: bytes.
        modified: time of the last write, in seconds since 1970 by the clock of the store; of an object, whole seconds.
        etag: tag that an object store changes with the content; None for a local file.
    """

    name: str
    size: int
    modified: float
    etag: str | None


def home_folder(setting: str) -> Path:
    """Return the home folder of the user."""
    try:
        return Path.home()
    except RuntimeError as error:
        raise ConfigError(setting, f"user {os.getuid()} has no home folder", "set it, or HOME, to a folder") from error


def walk(root: Path, prefix: str) -> Iterator[Entry]:
    """Yield every file below the folder ``prefix`` of ``root``; files that are deleted meanwhile are left out."""
    folders = [root / prefix if prefix else root]
    while folders:
        try:
            with os.scandir(folders.pop()) as found:
                children = list(found)
        except (FileNotFoundError, NotADirectoryError):
            continue
        for child in children:
            if child.is_dir(follow_symlinks=False):
                folders.append(Path(child.path))
            elif (entry := local_entry(root, Path(child.path))) is not None:
                yield entry


def local_entry(root: Path, path: Path) -> Entry | None:
    """Return the entry of a regular file, or None if there is none."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    return Entry(path.relative_to(root).as_posix(), found.st_size, found.st_mtime, None)


def checked_chunks(source: Path, sha256: str, size: int) -> Iterator[bytes]:
    """Yield the content of a file in pieces of ``size`` bytes; the last piece only if the content has the sha256."""
    digest = hashlib.sha256()
    with source.open("rb") as file:
        chunk = file.read(size)
        while True:
            digest.update(chunk)
            following = file.read(size)
            if not following and digest.hexdigest() != sha256:
                raise DigestMismatchError(f"{source} differs from its recorded sha256; build or fetch it again")
            yield chunk
            if not following:
                return
            chunk = following
