"""Local files for ``storage.Store``: listings with sizes and times, and reads that check the sha256."""

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lsr_prod.errors import ConfigError, DigestMismatchError


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
