"""Digests of local files, kept in the cache folder of the user: an unchanged file is not read again to be hashed.

The cache is a SQLite database that any number of processes share. It is only trusted for a file whose path, host,
device, inode, size and times are the recorded ones, and it never holds a file that was modified within the two seconds
before it was hashed: a further write could leave its time unchanged (the index of git has the same rule).
"""

import hashlib
import os
import platform
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, Self

from lsr_prod.logs import get_log
from lsr_prod.storage import artifacts, cache_folder
from lsr_prod.storage.formats.digests import is_sha256

log = get_log(__name__)

_SETTLED_NS = 2_000_000_000  # the coarsest clock of a common file system (FAT)
_DAYS = 90  # a file that no run named for so long is forgotten
_WAIT_S = 10.0  # for another process that writes
_BATCH = 1000  # new digests per transaction
_LARGE = 64_000_000  # bytes of a file that one process hashes for all


class FileChangedError(OSError):
    """A file was written while it was hashed."""


@dataclass(frozen=True, slots=True)
class FileState:
    """State of an open local file; a write changes it, except within one tick of the file system's clock."""

    device: int  # number of its file system
    inode: int  # its number on the file system
    size: int  # bytes
    mtime_ns: int  # time of the last write, in nanoseconds since 1970
    ctime_ns: int  # time of the last change of content, owner, mode or links
    seen_ns: int = field(compare=False)  # time when the state was read, by the clock of this machine

    @classmethod
    def of(cls, file: BinaryIO) -> "FileState":
        """Read the state of an open file."""
        seen = time.time_ns()
        found = os.fstat(file.fileno())
        return cls(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns, seen)

    @property
    def settled(self) -> bool:
        """Every later write gives the file another time: its last write was at least two seconds earlier.

        A time in the future was set, for example by a program that unpacks archives, when the state changed.
        """
        return self.seen_ns - (self.ctime_ns if self.mtime_ns > self.seen_ns else self.mtime_ns) >= _SETTLED_NS

    def key(self) -> str:
        """Return the text that the cache compares."""
        values = (self.device, self.inode, self.size, self.mtime_ns, self.ctime_ns)
        return ":".join([platform.node(), *map(str, values)])


class DigestCache:
    """Digests of local files; a context manager. Safe to share between threads.

    A cache that is damaged or cannot be written is reported once per process and not used: files are hashed.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._path = (folder or artifacts.user_cache()) / "digests.sqlite"
        self._guard = threading.Lock()
        self._new: dict[str, tuple[str, str]] = {}
        self._database: sqlite3.Connection | None = None
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(self._path, timeout=_WAIT_S, check_same_thread=False)
            self._database.execute(
                "CREATE TABLE IF NOT EXISTS digests"
                " (path TEXT PRIMARY KEY, state TEXT, sha256 TEXT, proof TEXT, day INTEGER) WITHOUT ROWID"
            )
        except (OSError, sqlite3.Error) as error:
            self._give_up(error)

    def digest(self, path: str, file: BinaryIO) -> tuple[str, FileState]:
        """Return the sha256 (hex) and the state of an open file, whose position is undefined afterwards."""
        state = FileState.of(file)
        if not state.settled:
            return self._hash(path, file, state), state
        found = self._find(path, state)
        if found is None:
            with self._turn(path, state.size):
                found = self._find(path, state) or self._hash(path, file, state)
                with self._guard:
                    self._new[path] = (state.key(), found)
                    if len(self._new) >= _BATCH:
                        self._flush()
        return found, state

    def close(self) -> None:
        """Write new digests, and close the database."""
        with self._guard:
            self._flush()
            if self._database is not None:
                self._database.close()
                self._database = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _turn(self, path: str, size: int) -> Iterator[None]:
        """Let one process at a time hash a large file: all readers of its slices need the digest at once."""
        if size < _LARGE or self._database is None:
            yield
            return
        name = hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest()[:2]
        with ExitStack() as stack:
            try:
                stack.enter_context(cache_folder.locked(self._path.with_name(f"digests.{name}.lock")))
            except OSError as error:
                self._give_up(error)
            yield
            with self._guard:
                self._flush()

    @staticmethod
    def _hash(path: str, file: BinaryIO, state: FileState) -> str:
        file.seek(0)
        sha = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]  # typeshed asks for readinto
        if FileState.of(file) != state:
            raise FileChangedError(f"{path} was written while it was hashed")
        return sha

    def _find(self, path: str, state: FileState) -> str | None:
        with self._guard:
            if self._database is None:
                return None
            try:
                query = "SELECT state, sha256, proof, day FROM digests WHERE path = ?"
                row = self._database.execute(query, (_text(path),)).fetchone()
            except sqlite3.Error as error:
                self._give_up(error)
                return None
            if row is None or row[0] != state.key() or row[2] != _proof(path, row[0], row[1]):
                return None
            if row[3] != _today():
                self._new[path] = (row[0], row[1])
            return str(row[1])

    def _flush(self) -> None:
        if self._database is None or not self._new:
            return
        day = _today()
        rows = [(_text(path), state, sha, _proof(path, state, sha), day) for path, (state, sha) in self._new.items()]
        try:
            with self._database:
                self._database.executemany("INSERT OR REPLACE INTO digests VALUES (?, ?, ?, ?, ?)", rows)
                self._database.execute("DELETE FROM digests WHERE day < ?", (day - _DAYS,))
        except sqlite3.Error as error:
            self._give_up(error)
        self._new.clear()

    def _give_up(self, error: Exception) -> None:
        _report(str(self._path), str(error))
        if self._database is not None:
            self._database.close()
            self._database = None


@lru_cache(maxsize=16)  # a worker opens the cache for every slice
def _report(path: str, error: str) -> None:
    log.warning("digest cache unusable, files are hashed again", extra={"fields": {"path": path, "error": error}})


def _text(path: str) -> str:
    """Return a path as SQLite can store it: names on Linux are bytes, and need not be UTF-8."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _proof(path: str, state: str, sha: object) -> str | None:
    """Return the digest of a row, which a damaged row does not have."""
    if not isinstance(sha, str) or not is_sha256(sha):
        return None
    return hashlib.sha256("\0".join((_text(path), state, sha)).encode()).hexdigest()[:16]


def _today() -> int:
    return int(time.time() // 86400)
