"""Open a pinned file, and verify that every byte that was read is of the pinned content.

An object is read with the condition that it has the pinned ETag. A local file has to have its pinned size, time of the
last write and inode when it is opened, and has to be unchanged after its last byte was read. A file with the pinned
size, but another time or inode (a copy, a file that was touched), is hashed once per node and accepted if its content
is the pinned one.

A writer that changes a file and restores its time is not detected, unless the file is hashed for another reason.
"""

import io
import platform
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, BinaryIO

from lsr_prod.corpus.source_file import SourceFile
from lsr_prod.errors import SourceError, StorageError
from lsr_prod.storage import ObjectChangedError, Store, is_remote
from lsr_prod.storage.digest_cache import DigestCache, FileChangedError, FileState

_SHA = re.compile(r"[0-9a-f]{64}")


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
        raise _failed(file, error) from error


def _failed(file: SourceFile, error: StorageError | OSError) -> SourceError:
    if isinstance(error, ObjectChangedError | FileChangedError):
        return SourceError(
            f"{file.location} has changed since it was pinned ({error}); do not write to the source while a job reads "
            "it: restore the file, or run the job again"
        )
    if not isinstance(error, FileNotFoundError):
        return SourceError(f"{file.location} cannot be read for now ({error}); run the job again")
    if is_remote(file.uri):
        return SourceError(f"{file.location} was deleted since it was pinned; restore it, or run the job again")
    return SourceError(
        f"{file.location} is not on node {platform.node()}; restore it if it was deleted, or put the source into an "
        "object store or a folder that every node sees, then run the job again"
    )
