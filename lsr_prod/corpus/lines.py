"""Lines of a text file, in bounded memory: ranges of bytes that tile a file have every line exactly once.

Of most encodings a line is decoded by itself, because a byte below 128 is always the ASCII character: files are cut and
positions counted as in UTF-8. Files of the others (UTF-16, UTF-32, ISO-2022, EBCDIC) are decoded as a whole.
Bytes that do not decode become lone surrogates, which are no UTF-8: the field that has them makes a bad row.
"""

import codecs
from collections.abc import Iterable, Iterator

from lsr_prod.config.corpus import is_line_encoding
from lsr_prod.corpus import compression, pinned_file

BOM = b"\xef\xbb\xbf"
"""Byte order mark of UTF-8; some programs begin a file with it."""
_BLOCK = 1 << 20
_INVALID = "lsr_prod.invalid"
codecs.register_error(_INVALID, lambda error: ("\udcff", error.end))  # type: ignore[attr-defined]

Line = tuple[int, bytes, bool]
"""Offset of a line, its bytes without the line feed, whether they are complete."""


def lines(file: compression.Readable, start: int, stop: int | None, limit: int) -> Iterator[Line]:
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


def text_lines(file: compression.Readable, start: int, stop: int | None, limit: int) -> Iterator[Line]:
    """Yield what ``lines`` yields, without blank lines and without the byte order marks of files that were joined."""
    for at, line, whole in lines(file, start, stop, limit):
        text = line.removeprefix(BOM)
        if text.strip():
            yield at, text, whole


class Counted:
    """Plain bytes that are counted; ``size`` is the number of those that were read."""

    def __init__(self, file: compression.Readable) -> None:
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


def _skip_line(file: compression.Readable, block: bytes) -> tuple[int, bytes]:
    """Return the number of bytes up to and including the next newline, and the bytes that were read beyond it."""
    passed = 0
    while block:
        newline = block.find(b"\n")
        if newline >= 0:
            return passed + newline + 1, block[newline + 1 :]
        passed += len(block)
        block = file.read1(_BLOCK)
    return passed, b""


class WrongEncodingError(pinned_file.DamagedFileError):
    """The text is in another encoding than the settings say."""


def require_narrow(line: bytes, remedy: str) -> None:
    """Refuse the first line of a file in UTF-16 or UTF-32: each of its lines would be a bad row."""
    unit = [byte != 0 for byte in line[:4]]
    for encoding, found in (
        ("utf-32", line.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE))),
        ("utf-16", line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))),
        ("utf-16-le", unit == [True, False, True, False]),
        ("utf-16-be", unit == [False, True, False, True]),
    ):
        if found:
            raise WrongEncodingError(f"the text is in {encoding}; {remedy.format(encoding)}", 0)


def to_utf8(lines: Iterable[Line], encoding: str) -> Iterator[Line]:
    """Yield the lines of a file that ``narrow`` returned as UTF-8; their offsets stay those of that file."""
    decoded = is_line_encoding(encoding) and codecs.lookup(encoding).name not in ("utf-8", "utf-8-sig")
    for at, line, whole in lines:
        if at == 0:
            require_narrow(line, "set source.csv.encoding: {}")
        yield at, _utf8(line.decode(encoding, _INVALID)) if decoded and not line.isascii() else line, whole


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def narrow(file: compression.Readable, encoding: str) -> compression.Readable:
    """Return a file whose lines ``to_utf8`` reads: of another encoding, the file as UTF-8."""
    return file if is_line_encoding(encoding) else WideText(file, encoding)


class WideText:
    """The UTF-8 of a text that cannot be cut into lines before it is decoded."""

    def __init__(self, file: compression.Readable, encoding: str) -> None:
        self._file, self._decoder = file, codecs.getincrementaldecoder(encoding)(_INVALID)
        self._read = self._returned = 0

    def read1(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes, none at the end."""
        while data := self._file.read1(max(size // 3, 1)):  # no encoding has a character in fewer bytes
            self._read += len(data)
            if text := _utf8(self._decoder.decode(data)):
                self._returned += len(text)
                return text
        rest = _utf8(self._decoder.decode(b"", final=True))
        self._decoder.reset()
        return rest

    def seek(self, offset: int, /) -> int:
        """Refuse to set a position."""
        raise OSError(f"cannot seek to byte {offset} of a text that is decoded")

    def packed(self, plain: int) -> int:
        """Return about how many bytes of the file hold this many bytes of UTF-8, at the mean ratio so far."""
        return -(-plain * self._read // max(self._returned, 1))
