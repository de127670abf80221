"""The folder of ``cache.IndexCache``: its locks, what it holds, and room for more.

A lock is of the operating system's kind (flock): it ends with its process, however that ends.
"""

import fcntl
import logging
import os
import re
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from lsr_prod.errors import StorageError
from lsr_prod.formats.digest import FileDigest
from lsr_prod.storage.local import is_draft

__all__ = ["PARTIAL", "Room", "draft_of", "files_in", "locked", "make_room", "mark_used", "versions_in"]

log = logging.getLogger(__name__)

PARTIAL = ".part"
_SHA = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Room:
    """What was done for a version.

    Attributes:
        missing: files to fetch.
        evicted: versions that were removed for it.
    """

    missing: tuple[FileDigest, ...]
    evicted: int


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Alone among all threads and processes that lock the file; it is made, and stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log.info("waiting for another process", extra={"fields": {"lock": str(path)}})
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def mark_used(version: Path) -> int | None:
    """Keep a version from being removed until the descriptor is closed; None if it is not there, or just going."""
    version.parent.mkdir(parents=True, exist_ok=True)
    mark = os.open(_mark(version), os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(mark, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if version.is_dir():
            os.utime(mark)
            return mark
    except BlockingIOError:
        pass
    os.close(mark)
    return None


def files_in(cache: Path) -> dict[str, int]:
    """Size by sha256 of the whole files."""
    folder = cache / "files"
    if not folder.is_dir():
        return {}
    return {path.name: path.stat().st_size for path in folder.iterdir() if _SHA.fullmatch(path.name)}


def versions_in(cache: Path) -> list[Path]:
    """Folders of the versions, least recently used first."""
    found = [path for path in cache.glob("indexes/*/*") if _SHA.fullmatch(path.name)]
    return sorted(found, key=lambda version: _mark(version).stat().st_mtime_ns if _mark(version).exists() else 0)


def draft_of(version: Path) -> Path:
    """A name for a version's folder that is not finished; the next ``make_room`` removes what stays under it."""
    return version.parent / f".{version.name}.{uuid.uuid4().hex}.tmp"


def make_room(cache: Path, needed: Mapping[str, FileDigest], max_bytes: int | None) -> Room:
    """Remove what no version has, and the least recently used versions that nobody uses until the new one fits.

    Args:
        cache: the folder, ``locked``.
        needed: the new version's files by sha256.
        max_bytes: for the files of all versions.

    Raises:
        StorageError: it does not fit even so; no version was removed.
    """
    (cache / "files").mkdir(parents=True, exist_ok=True)
    for path in cache.glob("indexes/*/.*"):
        if is_draft(path.name):
            shutil.rmtree(path)
    stored = files_in(cache)
    broken = [name for name, file in needed.items() if stored.get(name, file.size) != file.size]
    sizes = stored | {name: file.size for name, file in needed.items()}
    held = _held(cache)

    def total() -> int:
        return sum(sizes[name] for name in set(needed).union(*held.values()))

    victims = []
    with ExitStack() as marks:
        for version in list(held):
            if max_bytes is None or total() <= max_bytes:
                break
            if _seize(version, marks):
                victims.append(version)
                del held[version]
        if max_bytes is not None and total() > max_bytes:
            raise StorageError(
                f"the version needs {sum(file.size for file in needed.values())} bytes, {total()} with the versions "
                f"in use, and the cache {cache} may have {max_bytes}; raise its quota"
            )
        kept = set(needed).union(*held.values()).difference(broken)
        missing = tuple(file for name, file in needed.items() if name not in stored or name in broken)
        _check_disk(cache, missing, sum(size for name, size in stored.items() if name not in kept))
        for version in victims:
            _remove(version)
    kept |= {f"{name}{PARTIAL}" for name in needed}
    for path in (cache / "files").iterdir():
        if path.name not in kept and _SHA.fullmatch(path.name.removesuffix(PARTIAL)):
            path.unlink()
    return Room(missing, len(victims))


def _held(cache: Path) -> dict[Path, set[str]]:
    """The sha256 of every file of every version, least recently used version first: a version links its files."""
    names = {path.stat().st_ino: path.name for path in (cache / "files").iterdir()}
    held = {}
    for version in versions_in(cache):
        inodes = (path.stat().st_ino for path in version.rglob("*") if path.is_file())
        held[version] = {names[inode] for inode in inodes if inode in names}
    return held


def _seize(version: Path, marks: ExitStack) -> bool:
    """Whether nobody uses a version; nobody can begin to until ``marks`` are closed."""
    mark = os.open(_mark(version), os.O_RDWR | os.O_CREAT, 0o644)
    marks.callback(os.close, mark)
    try:
        fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _check_disk(cache: Path, missing: tuple[FileDigest, ...], freed: int) -> None:
    begun = sum(path.stat().st_size for path in (cache / "files").glob(f"*{PARTIAL}"))
    wanted = sum(file.size for file in missing) - begun - freed
    free = shutil.disk_usage(cache).free
    if wanted > free:
        raise StorageError(f"the version needs {wanted} bytes more on the disk of {cache}, which has {free}; free it")


def _remove(version: Path) -> None:
    draft = draft_of(version)
    version.rename(draft)  # a kill in the middle leaves no half version under its name
    shutil.rmtree(draft)
    log.info("version evicted", extra={"fields": {"version": version.name}})


def _mark(version: Path) -> Path:
    return version.with_name(f"{version.name}.use")
