"""JSON files with an array of objects, or with objects one after the other, on any number of lines.

``find_values`` finds where each value ends, in bounded memory: it follows brackets and strings, and leaves the rest of
the syntax to the parser. A value that is not closed ends the file, because nothing tells where the next one begins.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from lsr_prod.corpus.compression import Readable
from lsr_prod.corpus.formats.interface import Record, SourceFormat
from lsr_prod.corpus.formats.json_lines import JSON_REMEDY, line_records, nested_paths, parse_record
from lsr_prod.corpus.lines import BOM, Counted, Line, require_narrow
from lsr_prod.corpus.pinned_file import DamagedFileError
from lsr_prod.corpus.source_rows import DAMAGED_FILE, BadRow, parse_line, parse_object, shorten

_BLOCK = 1 << 20
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_GAP = re.compile(rb"(?:[\s,\x1e]++|" + BOM + rb")*+")  # between values; RFC 7464 begins a value with U+001E
_CONTENT = _PLAIN = rb'[^"{}\[\]]*+'
for _ in range(3):  # brackets inside: most objects have a few levels, and are found at once
    _CONTENT = rb"%b(?:(?:%b|\{%b\}|\[%b\])%b)*+" % (_PLAIN, _STRING, _CONTENT, _CONTENT, _PLAIN)
_OBJECT = re.compile(rb"\{%b\}" % _CONTENT, re.DOTALL)
_TOKEN = re.compile(rb'%b|["{}\[\]]' % _STRING, re.DOTALL)
_END_OF_STRING = re.compile(_STRING[1:], re.DOTALL)
_SCALAR = re.compile(rb'[^\s,"{}\[\]\x1e]*+')
_OPENING = {b"}": b"{", b"]": b"["}


def find_values(file: Readable, limit: int) -> Iterator[Line]:
    """Yield (offset, bytes, whether they are complete) of every value, of an array its elements.

    Of a value longer than ``limit`` the first ``limit`` bytes are yielded.
    """
    window, in_array = _Window(file, limit), False
    while (first := window.next_byte()) is not None:
        if first == b"[" and not in_array:
            in_array = True
            window.at += 1
        elif first == b"]" and in_array:
            in_array = False
            window.at += 1
        elif first in (b"{", b"[", b'"'):
            yield window.value()
        else:
            yield window.scalar()
    if in_array:
        raise DamagedFileError("the array is not closed", window.offset)


class _Window:
    """The part of a file that is scanned, and the next byte in it."""

    def __init__(self, file: Readable, limit: int) -> None:
        self._file, self._limit = file, limit
        self._data, self._base = b"", 0
        self.at = 0

    @property
    def offset(self) -> int:
        """Place of the next byte in the file."""
        return self._base + self.at

    def next_byte(self) -> bytes | None:
        """Skip what is between values, and return the byte after it; None: the file ends."""
        while True:
            gap = _GAP.match(self._data, self.at)
            assert gap is not None
            self.at = gap.end()
            if len(self._data) - self.at >= len(BOM):  # it may be the beginning of a mark
                break
            if not self._read(self.at):
                break
        return self._data[self.at : self.at + 1] or None

    def scalar(self) -> Line:
        """Return a number or a literal, or refuse what is neither."""
        while True:
            found = _SCALAR.match(self._data, self.at)
            assert found is not None
            if found.end() < len(self._data) or len(found[0]) > _BLOCK or not self._read(self.at):
                break
        offset, text = self.offset, found[0]
        if isinstance(parse_line(text), BadRow):
            raise DamagedFileError(f"{shorten(self._data[self.at : self.at + 20])!r} is no JSON", offset)
        self.at = found.end()
        return offset, text, True

    def value(self) -> Line:
        """Return an object, an array or a string."""
        if (found := _OBJECT.match(self._data, self.at)) is not None and len(found[0]) <= self._limit:
            offset, self.at = self.offset, found.end()
            return offset, found[0], True
        start, offset, head = self.at, self.offset, b""
        for end in self._ends():
            if end is not None:
                text = head or self._data[start:end]
                return offset, text[: self._limit], not head and len(text) <= self._limit
            if not head and self.at - start > self._limit:
                head = self._data[start : start + self._limit]
            if not self._read(self.at if head else start):
                raise DamagedFileError(f"the value at byte {offset} is not closed", offset)
            start = 0
        raise AssertionError("a value has an end, or the file has one")

    def _ends(self) -> Iterator[int | None]:
        """Follow a value: yield None whenever more of the file has to be read, and at last the end of the value."""
        opened, in_string, offset = bytearray(), False, self.offset
        while True:
            if in_string:
                closed = _END_OF_STRING.match(self._data, self.at)
                in_string = closed is None
                self.at = self._end_inside_string() if closed is None else closed.end()
                if not opened and not in_string:  # the value is a string
                    yield self.at
                    return
            for token in () if in_string else _TOKEN.finditer(self._data, self.at):
                mark = token[0]
                self.at = token.end()
                if mark in b"{[":
                    opened += mark
                elif mark in b"}]":
                    outer = opened.rfind(_OPENING[mark])
                    if outer < 0:
                        raise DamagedFileError(f"the value at byte {offset} is not closed", offset)
                    del opened[outer:]  # with the brackets in it that are not closed: the parser refuses them
                elif len(mark) == 1:  # the string ends in the next block
                    in_string = True
                    break
                if not opened and not in_string:
                    yield self.at
                    return
            if not in_string:
                self.at = len(self._data)
            yield None

    def _end_inside_string(self) -> int:
        """Return the end of the data, or the place of the escape that the next block completes."""
        backslashes = len(self._data) - len(self._data.rstrip(b"\\"))
        return len(self._data) - backslashes % 2

    def _read(self, keep: int) -> bool:
        """Read more of the file, and drop what is before ``keep``; returns False at the end of the file."""
        block = self._file.read1(_BLOCK)
        if not block:
            return False
        self._data = self._data[keep:] + block
        self._base += keep
        self.at -= keep
        return True


def json_records(file: Readable, columns: frozenset[str], limit: int) -> Iterator[tuple[int, Record | BadRow]]:
    """Yield (offset, record) of every value; a file whose first line is an object is read as JSON Lines."""
    text, paths, rows = Counted(file), nested_paths(columns), 0
    head = text.peek_line(limit).removeprefix(BOM).lstrip()
    is_array = not head.startswith(b"{")
    try:
        require_narrow(head, JSON_REMEDY)
        if not is_array and isinstance(first := parse_object(head), dict):
            _require_no_wrapper(first, columns)
            yield from line_records(text, 0, None, limit, columns)
            return
        for at, value, whole in find_values(text, limit):
            record = parse_record(value, whole, paths)
            if not rows and not is_array:
                _require_no_wrapper(record.values if isinstance(record, Record) else whole, columns)
            yield at, record
            rows += 1
    except DamagedFileError as error:
        start = error.decoded or 0
        while text.read1(_BLOCK):  # what is not read is counted
            pass
        yield start, BadRow(DAMAGED_FILE, f"{error}, after {rows} rows", None, "", unread=text.size - start)


def _require_no_wrapper(first: Mapping[str, Any] | bool, columns: frozenset[str]) -> None:
    """Refuse an object around the array of documents: its first value, or False if it is longer than any document."""
    if isinstance(first, bool):
        key = None if first else "data"
    elif columns.isdisjoint(first):
        lists = [
            key for key, value in first.items() if isinstance(value, list) and value and isinstance(value[0], dict)
        ]
        key = next(iter(lists), None)
    else:
        return
    if key is not None:
        raise DamagedFileError(f"it is an object around its documents; write them one per line: jq -c '.{key}[]'", 0)


JSON = SourceFormat("json", (".json",), lambda file, _, request: json_records(file, request.columns, request.limit))
