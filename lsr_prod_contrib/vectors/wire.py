"""Wire format of protocol buffers, as far as CIFF needs it: varints, delimited messages, fields; arrays of numbers.

A message is a sequence of fields; a field is a key (``number << 3 | type``) and a value: a varint (type 0), 8 bytes
(1), a length and so many bytes (2), or 4 bytes (5). Nothing is trusted: lengths are compared with what is there.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from lsr_prod.corpus.compression import Readable
from lsr_prod.corpus.pinned_file import DamagedFileError

MESSAGE_LIMIT = (1 << 31) - 1
"""Longest message in bytes, by the specification of protocol buffers."""

_BLOCK = 1 << 20
_LONGEST = 10  # bytes of a varint

Bytes = npt.NDArray[np.uint8]
Unsigned = npt.NDArray[np.uint64]


def varint(number: int) -> bytes:
    """Return the varint of a number of 0 or more, below 2**64."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def signed32(number: int) -> int:
    """Return the int32 that a varint of 64 bits stands for: negative numbers are sign-extended."""
    low = number & 0xFFFFFFFF
    return low - (1 << 32) if low >> 31 else low


def fields(message: bytes) -> Iterator[tuple[int, int, int | bytes, int]]:
    """Yield (number, type, value, offset behind it) of every field; the value is an int of type 0, else bytes."""
    at = 0
    while at < len(message):
        key, at = _read_varint(message, at)
        kind = key & 7
        value: int | bytes
        if kind == 0:
            value, at = _read_varint(message, at)
        else:
            if kind == 2:
                length, at = _read_varint(message, at)
            elif kind in (1, 5):
                length = 8 if kind == 1 else 4
            else:
                raise DamagedFileError(f"a field has the unknown wire type {kind}")
            if length > len(message) - at:
                raise DamagedFileError(f"a field of {length} bytes leaves its message")
            value = message[at : at + length]
            at += length
        yield key >> 3, kind, value, at


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    number = 0
    for place in range(_LONGEST):
        if at + place >= len(message):
            raise DamagedFileError("a number is cut")
        byte = message[at + place]
        number |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return number & (1 << 64) - 1, at + place + 1
    raise DamagedFileError(f"a number has more than {_LONGEST} bytes")


class DelimitedReader:
    """Reads messages that follow their length."""

    def __init__(self, file: Readable) -> None:
        self._file = file
        self._held = bytearray()
        self._at = 0

    def message(self) -> bytes | None:
        """Return the next message, or None at the end of the file."""
        length = self._length()
        if length is None:
            return None
        if length > MESSAGE_LIMIT:
            raise DamagedFileError(f"a message declares {length} bytes")
        while len(self._held) - self._at < length:  # memory follows the bytes that are there
            if not self._fill():
                raise DamagedFileError(f"the file ends inside a message of {length} bytes")
        message = bytes(memoryview(self._held)[self._at : self._at + length])
        self._at += length
        return message

    def _length(self) -> int | None:
        while True:
            head = bytes(memoryview(self._held)[self._at : self._at + _LONGEST])
            if len(head) == _LONGEST or any(byte < 0x80 for byte in head):
                length, used = _read_varint(head, 0)
                self._at += used
                return length
            if not self._fill():
                if head:
                    raise DamagedFileError("the file ends inside a length")
                return None

    def _fill(self) -> bool:
        block = self._file.read1(_BLOCK)
        if self._at > _BLOCK:
            del self._held[: self._at]
            self._at = 0
        self._held += block
        return bool(block)


def decode_varints(data: Bytes) -> Unsigned | None:
    """Return the numbers of a sequence of varints, or None if the bytes are no such sequence.

    Returns:
        uint64, one per varint.
    """
    ends = np.flatnonzero(data < 0x80)
    if not len(ends) or ends[-1] != len(data) - 1:
        return None if len(data) else np.zeros(0, np.uint64)
    starts = np.concatenate([[0], ends[:-1] + 1])
    lengths = ends - starts + 1
    if lengths.max() > _LONGEST:
        return None
    numbers = np.zeros(len(ends), np.uint64)
    for place in range(int(lengths.max())):
        longer = np.flatnonzero(lengths > place)
        part = data[starts[longer] + place].astype(np.uint64) & np.uint64(0x7F)
        numbers[longer] |= part << np.uint64(7 * place)
    return numbers


def varint_lengths(numbers: Unsigned) -> npt.NDArray[np.int64]:
    """Return the bytes of the varint of every number."""
    lengths = np.ones(len(numbers), np.int64)
    for place in range(1, _LONGEST):
        lengths += numbers >> np.uint64(7 * place) > 0
    return lengths


def encode_varints(out: Bytes, starts: npt.NDArray[np.int64], numbers: Unsigned) -> None:
    """Write varints into an array."""
    lengths = varint_lengths(numbers)
    for place in range(int(lengths.max(initial=0))):
        longer = lengths > place
        part = (numbers[longer] >> np.uint64(7 * place)) & np.uint64(0x7F)
        more = np.where(lengths[longer] > place + 1, np.uint64(0x80), np.uint64(0))
        out[starts[longer] + place] = (part | more).astype(np.uint8)
