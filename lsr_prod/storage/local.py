"""Local folders as ``storage.Store`` needs them: listings with sizes and times, files that appear whole or never."""

import os
import re
import stat
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Entry", "is_draft", "link_chunks", "link_new", "local_entry", "sync_folder", "walk"]

_DRAFT = re.compile(r"(^|/)\.[^/]+\.[0-9a-f]{32}\.tmp$")


@dataclass(frozen=True, slots=True)
class Entry:
    """What a store knows of an object.

    Attributes:
        name: path inside the folder, with forward slashes.
        size: bytes.
        modified: when it was written, seconds since 1970 by the clock of the store.
        etag: what an object store changes whenever the content changes; None for a local file.
    """

    name: str
    size: int
    modified: float
    etag: str | None


def walk(root: Path, prefix: str) -> Iterator[Entry]:
    """Every file below the folder ``prefix`` of ``root``; what goes while we look is left out."""
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
    """The entry of a regular file, or None if there is none."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    return Entry(path.relative_to(root).as_posix(), found.st_size, found.st_mtime, None)


def is_draft(name: str) -> bool:
    """Whether the name is that of an unfinished file: a process that is killed in ``link_new`` leaves one."""
    return _DRAFT.search(name) is not None


def link_new(target: Path, data: bytes) -> bool:
    """Write a file durably under a name that was free; False if the name is taken."""
    return link_chunks(target, (data,))


def link_chunks(target: Path, chunks: Iterable[bytes]) -> bool:
    """``link_new`` for content that comes in pieces; if they end in an error, nothing was written."""
    if target.exists():
        return False
    _make_folder(target.parent)
    draft = target.parent / f".{target.name}.{uuid.uuid4().hex}.tmp"
    try:
        with draft.open("xb") as file:
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        # link, unlike rename, never replaces: a finished object is never overwritten and never seen half written.
        os.link(draft, target)
    except FileExistsError:
        return False
    finally:
        draft.unlink(missing_ok=True)
    sync_folder(target.parent)
    return True


def _make_folder(folder: Path) -> None:
    """Make a folder and its parents, each durably."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
