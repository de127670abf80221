"""Open a pinned file, and verify that every byte that was read is of the pinned content.

An object is read with the condition that it has the pinned ETag. A local file has to have its pinned size, time of the
last write and inode when it is opened, and has to be unchanged after its last byte was read. A file with the pinned
size, but another time or inode (a copy, a file that was touched), is hashed once per node and accepted if its content
is the pinned one.

A writer that changes a file and restores its time is not detected, unless the file is hashed for another reason.
"""

import hashlib
import io
import os
import platform
import re
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from lsr_prod.corpus.folders import source_error
from lsr_prod.errors import SourceError, StorageError
from lsr_prod.storage import Entry, ObjectChangedError, Store, deletion_vector, is_remote
from lsr_prod.storage.digest_cache import DigestCache, FileChangedError, FileState
from lsr_prod.storage.formats.digests import canonical_json

_SHA = re.compile(r"[0-9a-f]{64}")
Target = tuple[str, Entry, str]
"""Folder, entry and format of a file."""
# A file that was written just now is hashed again by every reader of a slice. Of a large file, which has many slices,
# the time of the last write is waited for instead.
_LARGE = 64_000_000
_SETTLING_S = 2.0


COMPRESSIONS = (".gz", ".zst", ".bz2", ".xz", ".lz4", ".zip")
"""Endings of a compressed file and of its ``SourceFile.format``."""

WHOLE = -1
"""``Slice.stop`` of a file whose footer was not read: all of its row groups."""


class DamagedFileError(Exception):
    """The rest of a file does not have the format that was expected."""

    def __init__(self, problem: str, decoded: int | None = None) -> None:
        super().__init__(problem)
        self.decoded = decoded


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One pinned file of a source.

    The last three are facts of a location, which a reader verifies. They are neither part of the identity nor compared.
    """

    uri: str  # its folder
    name: str  # its path inside the folder
    format: str  # name of the file format, with ``.gz`` or ``.zst`` if it is compressed
    size: int  # bytes
    tag: str  # sha256 of a local file, ETag of an object, or the entry of a Delta log: it changes when the file changes
    # columns with one value for the whole file, from the partition of a Delta source
    constants: tuple[tuple[str, str | None], ...] = ()
    # columns of a table with other names in its files: the name, and the name or the number (``field_id`` of Parquet)
    # in the file. Other columns of the file are not read. Empty: the names are those in the file
    columns: tuple[tuple[str, str | int], ...] = ()
    # where a Delta table stores the numbers of the rows that are deleted; None: none is
    deleted: deletion_vector.DeletionVector | None = None
    etag: str = field(default="", compare=False)  # of an object; empty for a local file
    # time of the last write of a local file, in nanoseconds since 1970; 0 for an object, and for a file that was
    # written so shortly before it was pinned that a later write could leave its time unchanged
    mtime_ns: int = field(default=0, compare=False)
    inode: int = field(default=0, compare=False)  # of a local file; 0 for an object

    @property
    def location(self) -> str:
        """Path or URI, for people."""
        return f"{self.uri.rstrip('/')}/{self.name}"

    @property
    def key(self) -> int:
        """64 bits that identify the content: the first 8 bytes of the sha256 of ``identity``, big-endian, signed."""
        return int.from_bytes(hashlib.sha256(canonical_json(self.identity())).digest()[:8], "big", signed=True)

    def identity(self) -> dict[str, Any]:
        """Return the values that identify the content; the folder is not one of them, so a corpus can move."""
        facts = {"name": self.name.rpartition("/")[2], "format": self.format, "size": self.size, "tag": self.tag}
        columns = {"columns": dict(self.columns)} if self.columns else {}
        deleted = {"deleted": self.deleted.unique_id} if self.deleted else {}
        return {**facts, "constants": dict(self.constants), **columns, **deleted}


@dataclass(frozen=True, slots=True)
class Slice:
    """A range of one source file; self-contained, so that no list of files travels with it."""

    file: SourceFile  # the pinned file
    ordinal: int  # its number in the plan
    start: int  # first byte of text, first row group of a file with a footer
    # end (exclusive), or ``WHOLE``. A line belongs to the slice that has its first byte; a compressed file is
    # never cut.
    stop: int
    first_row: int  # number of rows before ``start`` in a file with a footer
    size: int  # source bytes, to balance tasks

    @property
    def byte_range(self) -> tuple[int, int | None]:
        """Range of plain bytes in a text file; the end is None for a compressed file, whose plain size is unknown."""
        return (0, None) if self.file.format.endswith(COMPRESSIONS) else (self.start, self.stop)


class WatchedFile(io.RawIOBase):
    """File that records a failure to read its bytes: decoders raise different exceptions for such a failure.

    Attributes:
        failure: the first failure, or None.
    """

    def __init__(self, handle: BinaryIO) -> None:
        self._handle = handle
        self.failure: OSError | None = None

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._handle.tell()

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Set the position."""
        return self._handle.seek(offset, whence)

    def readinto(self, buffer: Any, /) -> int:
        """Read bytes into a buffer and return their number."""
        try:
            return int(self._handle.readinto(buffer))  # type: ignore[attr-defined]
        except OSError as error:
            self.failure = self.failure or error
            raise


@contextmanager
def open_pinned(file: SourceFile, options: dict[str, str]) -> Iterator[WatchedFile]:
    """Open a pinned file. The end of the block verifies what was read, unless a generator in it was closed early."""
    with ExitStack() as stack:
        with _named(file):
            handle = stack.enter_context(Store(file.uri, options).open_reader(file.name, etag=file.etag or None))
            before = None if is_remote(file.uri) else _verify(file, handle)
        watched = WatchedFile(handle)
        try:
            yield watched
        except Exception:
            with _named(file):
                _verify_read(file, handle, watched, before)
            raise
        with _named(file):
            _verify_read(file, handle, watched, before)


def check_pinned(file: SourceFile, options: dict[str, str]) -> None:
    """Verify that a file is as it was pinned, without reading it."""
    with open_pinned(file, options):
        pass


def _verify(file: SourceFile, handle: BinaryIO) -> FileState:
    state = FileState.of(handle)
    if state.size != file.size:
        raise FileChangedError(f"it has {state.size} bytes instead of {file.size}")
    if file.mtime_ns and (state.mtime_ns, state.inode) == (file.mtime_ns, file.inode):
        return state
    if _SHA.fullmatch(file.tag):
        state = _verify_content(file, handle)
        handle.seek(0)
    elif state.mtime_ns != file.mtime_ns:  # a Delta log does not name the digest of a content
        raise FileChangedError("it was written again")
    return state


def _verify_content(file: SourceFile, handle: BinaryIO) -> FileState:
    with DigestCache() as cache:
        digest, state = cache.digest(file.location, handle)
    if digest != file.tag:
        raise FileChangedError("it has another content of the same size")
    return state


def _verify_read(file: SourceFile, handle: BinaryIO, watched: WatchedFile, before: FileState | None) -> None:
    if watched.failure is not None:
        raise watched.failure
    if before is None:
        return
    after = FileState.of(handle)
    if (after.size, after.mtime_ns) != (before.size, before.mtime_ns):
        raise FileChangedError("it was written while it was read")
    if _SHA.fullmatch(file.tag) and not (before.settled and after == before):
        _verify_content(file, handle)


@contextmanager
def _named(file: SourceFile) -> Iterator[None]:
    """Turn a failure to read a file into an error that names the file."""
    try:
        yield
    except (StorageError, OSError) as error:
        if isinstance(error, ObjectChangedError | FileChangedError):
            problem = (
                f"has changed since it was pinned ({error}); do not write to the source while a job reads it: restore "
                "the file, or run the job again"
            )
        elif not isinstance(error, FileNotFoundError):
            problem = f"cannot be read for now ({error}); run the job again"
        elif is_remote(file.uri):
            problem = "was deleted since it was pinned; restore it, or run the job again"
        else:
            problem = (
                f"is not on node {platform.node()}; restore it if it was deleted, or put the source into an object "
                "store or a folder that every node sees, then run the job again"
            )
        raise SourceError(f"{file.location} {problem}") from error


def pin_files(targets: Iterator[Target]) -> Iterator[SourceFile]:
    """Yield pinned files: objects have an ETag in the listing; local files are hashed on all cores, a few ahead.

    A local file that is unchanged since an earlier run is not read (``DigestCache``).
    """
    first = next(targets, None)
    if first is None:
        return
    everything = chain([first], targets)
    if is_remote(first[0]):
        for uri, entry, file_format in everything:
            etag = _etag(uri, entry)
            yield SourceFile(uri, entry.name, file_format, entry.size, etag, etag=etag)
        return
    workers = os.cpu_count() or 1
    with DigestCache() as cache, ThreadPoolExecutor(workers) as pool:
        ahead: deque[Future[SourceFile]] = deque()
        for target in everything:
            ahead.append(pool.submit(_pin, target, cache))
            if len(ahead) > 8 * workers:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


def _pin(target: Target, cache: DigestCache) -> SourceFile:
    uri, entry, file_format = target
    path = Path(uri, entry.name)
    try:
        with path.open("rb") as file:
            state = FileState.of(file)
            if state.size > _LARGE and not state.settled:
                time.sleep(_SETTLING_S)
            digest, state = cache.digest(str(path), file)
    except OSError as error:
        raise source_error(f"{path} cannot be read ({error})", "fix the file or leave it out") from error
    # Until the file has settled, its time says nothing about later writes: readers compare the content.
    mtime_ns = state.mtime_ns if state.settled else 0
    return SourceFile(uri, entry.name, file_format, state.size, digest, mtime_ns=mtime_ns, inode=state.inode)


def _etag(uri: str, entry: Entry) -> str:
    if not entry.etag:
        raise source_error(f"the store gives no ETag for {uri}/{entry.name}", "copy the corpus to a store that does")
    return entry.etag
