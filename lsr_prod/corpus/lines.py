"""Lines of a text file: from any range of bytes, through gzip or zstd, never more than a limit in memory."""

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, Protocol

import pyarrow as pa

from lsr_prod.corpus.source_file import FileFormat

__all__ = ["Readable", "decompressed", "lines"]

_BLOCK = 1 << 20
# A damaged block is lost as a whole together with what was decompressed for it: small ones keep more good rows.
_COMPRESSED_BLOCK = 1 << 16


class Readable(Protocol):
    """What ``lines`` needs of a file; ``seek`` only where a range starts in the middle."""

    def read1(self, size: int, /) -> bytes:
        """Up to ``size`` bytes, none at the end."""
        ...

    def seek(self, offset: int, /) -> int:
        """Go to a byte."""
        ...


@contextmanager
def decompressed(handle: BinaryIO, file_format: FileFormat) -> Iterator[Readable]:
    """The plain bytes of a text file."""
    if file_format.endswith(".gz"):
        with gzip.open(handle) as plain:
            yield plain
    elif file_format.endswith(".zst"):
        with pa.CompressedInputStream(pa.PythonFile(handle, "r"), "zstd") as stream:
            yield _SmallReads(stream)
    else:
        yield handle  # type: ignore[misc]  # every binary file of Python's own has read1


class _SmallReads:
    """Arrow fills the whole block that is asked for, or fails."""

    def __init__(self, stream: pa.NativeFile) -> None:
        self._stream = stream

    def read1(self, size: int, /) -> bytes:
        return bytes(self._stream.read(min(size, _COMPRESSED_BLOCK)))

    def seek(self, offset: int, /) -> int:
        raise OSError(f"a compressed file has no byte {offset} to go to")


def lines(file: Readable, start: int, stop: int | None, limit: int) -> Iterator[tuple[int, bytes, bool]]:
    """The lines whose first byte lies in ``[start, stop)``; ranges that tile a file give every line exactly once.

    Args:
        file: seekable if ``start`` is above 0.
        start: first byte of the range.
        stop: the one after the last; None reads to the end.
        limit: longest line in bytes.

    Yields:
        (offset of the line, its bytes without the newline, whether they are all of it). Of a line longer than
        ``limit`` the first ``limit`` bytes come, and at most ``limit`` + 1 MiB are ever held.
    """
    offset, skipping = start, start > 0
    if skipping:  # the line that runs into this range belongs to the one before, unless it ends right before us
        offset = start - 1
        file.seek(offset)
    held, searched, cut = bytearray(), 0, False
    while stop is None or offset < stop or skipping:
        newline = held.find(b"\n", searched)
        if newline < 0:
            searched = len(held)
            block = file.read1(_BLOCK)
            if not block and not held:
                return
            if block and (len(held) <= limit):
                held += block
                continue
            if block:  # too long: keep the head, let the rest go by
                head, length = bytes(held[:limit]), len(held)
                rest, tail = _skip_line(file, bytes(block))
                if not skipping:
                    yield offset, head, False
                offset, held, searched, skipping = offset + length + rest, bytearray(tail), 0, False
                continue
            newline = len(held)  # the last line has no newline
            cut = True
        line = bytes(held[:newline])
        del held[: newline + 1]
        searched = 0
        if not skipping:
            yield (offset, line, True) if len(line) <= limit else (offset, line[:limit], False)
        offset += newline + 1
        skipping = False
        if cut:
            return


def _skip_line(file: Readable, block: bytes) -> tuple[int, bytes]:
    """Bytes up to and including the next newline, and what was read beyond it."""
    passed = 0
    while block:
        newline = block.find(b"\n")
        if newline >= 0:
            return passed + newline + 1, block[newline + 1 :]
        passed += len(block)
        block = file.read1(_BLOCK)
    return passed, b""
