"""Lines of a text file: from any range of bytes, in bounded memory."""

from collections.abc import Iterator
from typing import Protocol

_BLOCK = 1 << 20


class Readable(Protocol):
    """Methods of a file that ``lines`` uses; ``seek`` only if a range starts in the middle."""

    def read1(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes, none at the end."""
        ...

    def seek(self, offset: int, /) -> int:
        """Set the position to a byte."""
        ...


def lines(file: Readable, start: int, stop: int | None, limit: int) -> Iterator[tuple[int, bytes, bool]]:
    """Yield the lines whose first byte is in ``[start, stop)``; ranges that tile a file yield every line exactly once.

    Yields:
        (offset of the line, its bytes without the newline, whether they are complete). A line longer than ``limit`` is
        cut to its first ``limit`` bytes; at most ``limit`` + 1 MiB are in memory.
    """
    offset, skipping = start, start > 0
    if skipping:  # a line that begins before ``start`` belongs to the range before
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
            if block:  # too long: keep the first bytes, skip the rest
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
    """Return the number of bytes up to and including the next newline, and the bytes that were read beyond it."""
    passed = 0
    while block:
        newline = block.find(b"\n")
        if newline >= 0:
            return passed + newline + 1, block[newline + 1 :]
        passed += len(block)
        block = file.read1(_BLOCK)
    return passed, b""
