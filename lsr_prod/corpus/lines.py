"""Lines of a text file, in bounded memory: ranges of bytes that tile a file have every line exactly once."""

from collections.abc import Iterator

from lsr_prod.corpus.compression import Readable

BOM = b"\xef\xbb\xbf"
"""Byte order mark of UTF-8; some programs begin a file with it."""
_BLOCK = 1 << 20

Line = tuple[int, bytes, bool]
"""Offset of a line, its bytes without the line feed, whether they are complete."""


def lines(file: Readable, start: int, stop: int | None, limit: int) -> Iterator[Line]:
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


def text_lines(file: Readable, start: int, stop: int | None, limit: int) -> Iterator[Line]:
    """Yield what ``lines`` yields, without blank lines and without the byte order marks of files that were joined."""
    for at, line, whole in lines(file, start, stop, limit):
        text = line.removeprefix(BOM)
        if text.strip():
            yield at, text, whole


class Counted:
    """Plain bytes that are counted; ``size`` is the number of those that were read."""

    def __init__(self, file: Readable) -> None:
        self._file, self._held = file, b""
        self.size = 0

    def peek_line(self, limit: int) -> bytes:
        """Return the first line, or a longer line up to about ``limit``, and read it again later."""
        while b"\n" not in self._held and len(self._held) <= limit and (block := self._file.read1(_BLOCK)):
            self._held += block
        return self._held.partition(b"\n")[0]

    def read1(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes, none at the end; first of all what was held."""
        data, self._held = self._held or self._file.read1(size), b""
        self.size += len(data)
        return data

    def seek(self, offset: int, /) -> int:
        """Set the position."""
        return self._file.seek(offset)


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
