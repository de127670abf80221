"""Text files in other encodings than UTF-8.

Of most encodings a line is decoded by itself, because a byte below 128 is always the ASCII character: files are cut and
positions counted as in UTF-8. Files of the others (UTF-16, UTF-32, ISO-2022, EBCDIC) are decoded as a whole.
Bytes that do not decode become lone surrogates, which are no UTF-8: the field that has them makes a bad row.
"""

import codecs
from collections.abc import Iterable, Iterator

from lsr_prod.config.corpus import is_line_encoding
from lsr_prod.corpus.compression import Readable
from lsr_prod.corpus.lines import Line
from lsr_prod.corpus.pinned_file import DamagedFileError

_INVALID = "lsr_prod.invalid"
codecs.register_error(_INVALID, lambda error: ("\udcff", error.end))  # type: ignore[attr-defined]


class WrongEncodingError(DamagedFileError):
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


def narrow(file: Readable, encoding: str) -> Readable:
    """Return a file whose lines ``to_utf8`` reads: of another encoding, the file as UTF-8."""
    return file if is_line_encoding(encoding) else WideText(file, encoding)


class WideText:
    """The UTF-8 of a text that cannot be cut into lines before it is decoded."""

    def __init__(self, file: Readable, encoding: str) -> None:
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
