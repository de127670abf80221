"""The folder of a ``node_cache.NodeCache``: locks, contents, and eviction.

Locks are those of the operating system (flock): a lock ends with its process, however the process ends.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from lsr_prod.errors import StorageError
from lsr_prod.logs import get_log
from lsr_prod.storage import disk, drafts, transfer
from lsr_prod.storage.formats.digests import FileDigest, is_sha256

log = get_log(__name__)


@contextmanager
def cache_errors(cache: Path) -> Iterator[None]:
    """Turn errors of the disk in the block into ``StorageError``."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(f"the cache {cache} cannot be used ({error}); fix the disk or free space on it") from error


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file, among all threads and processes; the file is created and kept."""
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


def mark_used(artifact: Path) -> int | None:
    """Keep an artifact from being evicted until the returned descriptor is closed.

    Returns:
        A file descriptor; None if the artifact is not in the cache or is being evicted.
    """
    artifact.parent.mkdir(parents=True, exist_ok=True)
    mark, kept = os.open(_mark(artifact), os.O_RDWR | os.O_CREAT, 0o644), False
    try:
        fcntl.flock(mark, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if artifact.is_dir():
            os.utime(mark)
            kept = True
            return mark
    except BlockingIOError:
        pass
    finally:
        if not kept:
            os.close(mark)
    return None


def files_in(cache: Path) -> dict[str, int]:
    """Return the size of every complete file by sha256."""
    folder = cache / "files"
    if not folder.is_dir():
        return {}
    return {path.name: path.stat().st_size for path in folder.iterdir() if is_sha256(path.name)}


def artifacts_in(cache: Path) -> list[Path]:
    """Return the folders of the artifacts, least recently used first."""
    found = [path for path in cache.glob("artifacts/*/*") if is_sha256(path.name)]
    return sorted(found, key=lambda artifact: _mark(artifact).stat().st_mtime_ns if _mark(artifact).exists() else 0)


def make_room(cache: Path, needed: Mapping[str, FileDigest], max_bytes: int | None) -> tuple[FileDigest, ...]:
    """Remove leftovers, and evict unused artifacts, least recently used first, until a new artifact fits.

    Returns:
        The files to fetch.
    """
    (cache / "files").mkdir(parents=True, exist_ok=True)
    for path in cache.glob("artifacts/*/.*"):
        if disk.is_draft(path.name):
            shutil.rmtree(path)
    stored = files_in(cache)
    broken = [name for name, file in needed.items() if stored.get(name, file.size) != file.size]
    sizes = stored | {name: file.size for name, file in needed.items()}
    held = _held(cache)

    def total() -> int:
        return sum(sizes[name] for name in set(needed).union(*held.values()))

    victims = []
    with ExitStack() as marks:
        for artifact in list(held):
            if max_bytes is None or total() <= max_bytes:
                break
            if _lock_unused(artifact, marks):
                victims.append(artifact)
                del held[artifact]
        if max_bytes is not None and total() > max_bytes:
            raise StorageError(
                f"the artifact needs {sum(file.size for file in needed.values())} bytes, {total()} with the artifacts "
                f"in use, but the cache {cache} has a quota of {max_bytes}; raise the quota"
            )
        kept = set(needed).union(*held.values()).difference(broken)
        missing = tuple(file for name, file in needed.items() if name not in stored or name in broken)
        _check_disk(cache, missing, sum(size for name, size in stored.items() if name not in kept))
        for artifact in victims:
            drafts.remove(artifact)
            log.info("artifact evicted", extra={"fields": {"artifact": artifact.name}})
    kept |= {f"{name}{transfer.PARTIAL}" for name in needed}
    for path in (cache / "files").iterdir():
        if path.name not in kept and is_sha256(path.name.removesuffix(transfer.PARTIAL)):
            path.unlink()
    return missing


def _held(cache: Path) -> dict[Path, set[str]]:
    """Return the sha256 of every file of every artifact, least recently used first; artifacts hard-link files."""
    names = {path.stat().st_ino: path.name for path in (cache / "files").iterdir()}
    held = {}
    for artifact in artifacts_in(cache):
        held[artifact] = {names[inode] for inode in map(_inode, artifact.rglob("*")) if inode in names}
    return held


def _inode(path: Path) -> int | None:
    """Return the inode of a file; None for a folder, and for a draft that its writer removed meanwhile."""
    try:
        return path.stat().st_ino if path.is_file() else None
    except FileNotFoundError:
        return None


def _lock_unused(artifact: Path, marks: ExitStack) -> bool:
    """Lock an artifact that is not in use until ``marks`` are closed; return False if it is in use."""
    mark = os.open(_mark(artifact), os.O_RDWR | os.O_CREAT, 0o644)
    marks.callback(os.close, mark)
    try:
        fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _check_disk(cache: Path, missing: tuple[FileDigest, ...], freed: int) -> None:
    begun = sum(path.stat().st_size for path in (cache / "files").glob(f"*{transfer.PARTIAL}"))
    wanted = sum(file.size for file in missing) - begun - freed
    free = shutil.disk_usage(cache).free
    if wanted > free:
        raise StorageError(
            f"the artifact needs {wanted} more bytes on the disk of {cache}, which has {free} free; free the disk"
        )


def _mark(artifact: Path) -> Path:
    return artifact.with_name(f"{artifact.name}.use")
