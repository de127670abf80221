"""Rows of files of queries, judgments and runs: tables, JSON and Parquet, with the column names of other tools."""

import csv
import json
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lsr_prod.corpus import compression, pinned_file
from lsr_prod.corpus.lines import BOM, lines
from lsr_prod.errors import SourceError
from lsr_prod.storage.folders import open_binary

_LONGEST = 1 << 24
_QUOTED = re.compile(r'"((?:[^"]|"")*)"')
_PUNCTUATION = re.compile(r"[-_#\s]+")
_Lines = Iterator[tuple[int, str]]  # number from 1, text
Row = tuple[str, dict[str, Any]]
"""Place of the row, as ``file:line``, and its values by column."""


@dataclass(frozen=True, slots=True)
class RowKind:
    """Columns of one kind of file."""

    noun: str  # name of a row, for errors
    advice: str  # accepted formats, for errors
    # column -> its names in files, in lower case and without ``-``, ``_`` and spaces; the first is preferred
    names: Mapping[str, Sequence[str]]
    required: frozenset[str]  # columns that a header or a JSON object must have
    layouts: Sequence[Sequence[str]]  # columns of tables without a header; their numbers of columns differ
    # columns of numbers, by which a table without a header is recognized; the first one is that of JSON ``{query:
    # {document: number}}``. None: only a tab separates the columns of such a table, and quotes and further tabs are
    # part of the last one.
    values: Sequence[str] = ()

    def invalid(self, where: str, why: object) -> SourceError:
        """Return the error for a row."""
        return SourceError(f"{where} is not {self.noun} ({why}); give {self.advice}")


def numbered_lines(place: str, options: Mapping[str, str] | None = None) -> _Lines:
    """Yield number (from 1) and text of every line that is not blank, without its line end.

    A compressed file is recognized by its name, as in a source.
    """
    try:
        with open_binary(place, options) as raw, compression.decompressed(raw, place) as file:
            for number, (at, line, whole) in enumerate(lines(file, 0, None, _LONGEST), start=1):
                if not whole:
                    raise SourceError(f"line {number} of {place} has more than {_LONGEST} bytes; shorten it")
                text = (line if at else line.removeprefix(BOM)).decode().rstrip("\r")
                if text.strip():
                    yield number, text
    except UnicodeDecodeError as error:
        raise SourceError(f"{place} cannot be read as UTF-8 ({error}); convert the file to UTF-8") from error
    except (pinned_file.DamagedFileError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        raise SourceError(f"{place} cannot be decompressed ({error}); copy the file again") from error


def read_rows(place: str, kind: RowKind, options: Mapping[str, str] | None = None) -> Iterator[Row]:
    """Yield every row of a file; the format is recognized from the first line, Parquet from the name.

    Lines that begin with ``#`` and a space are comments.
    """
    if place.endswith(".parquet"):
        yield from _parquet_rows(place, kind, options)
        return
    found = numbered_lines(place, options)
    if (first := next((row for row in found if not _is_comment(row[1])), None)) is None:
        return
    number, line = first
    is_object = line.lstrip().startswith(("{", "["))
    table = None if is_object and _is_json(line) else _find_table(line, kind)
    if table is not None:
        yield from _table_rows(place, kind, table, found if table.header else chain([first], found))
    elif is_object:
        yield from _json_rows(place, kind, first, found)
    else:
        raise kind.invalid(f"{place}:{number}", "neither a row nor a header with known names")


def identifier(value: Any) -> str:
    """Return an id as text; only texts and integers are ids."""
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise TypeError(f"{value!r} is no id")
    text = str(value)
    text.encode()  # JSON can contain lone surrogates, which no file can
    return text


def parse_number(value: Any) -> float:
    """Return a number of a table or of JSON."""
    if isinstance(value, bool) or "_" in str(value):
        raise TypeError(f"{value!r} is no number")
    try:
        return float(value)
    except OverflowError as error:
        raise ValueError(error) from error


def _is_comment(line: str) -> bool:
    return line == "#" or (line.startswith("# ") and not line.startswith("# Q0 "))  # a line of a run for the query "#"


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


@dataclass(frozen=True, slots=True)
class _Table:
    delimiter: str | None  # None: white space
    places: Mapping[str, int]  # column -> its place
    width: int
    header: bool


def _find_table(line: str, kind: RowKind) -> _Table | None:
    """Return the form of a table from its first line."""
    splits: list[tuple[str | None, list[str]]] = []
    for delimiter in ("\t", ",", ";", None) if kind.values else "\t,;":
        with suppress(ValueError):
            splits.append((delimiter, _split(line, delimiter)))
    for delimiter, names in splits:
        places = _places(names, kind)
        if places.keys() >= kind.required:
            return _Table(delimiter, {column: names.index(name) for column, name in places.items()}, len(names), True)
    if not kind.values:
        splits = [("\t", line.split("\t", 1))]
    for delimiter, fields in splits:
        for layout in kind.layouts:
            if len(fields) == len(layout) and (not kind.values or _has_number(fields, layout, kind.values)):
                return _Table(delimiter, {column: i for i, column in enumerate(layout)}, len(layout), False)
    return None


def _has_number(fields: Sequence[str], layout: Sequence[str], values: Sequence[str]) -> bool:
    """Return whether the column of numbers has one; a space in the last column means that spaces are the delimiters."""
    try:
        parse_number(next(field for field, column in zip(fields, layout, strict=True) if column in values))
    except (TypeError, ValueError):
        return False
    return len(fields[-1].split()) == 1


def _places(names: Iterable[str], kind: RowKind) -> dict[str, str]:
    """Return the name of every known column among names."""
    known = {_PUNCTUATION.sub("", name).lower(): name for name in names}
    found = {column: [known[name] for name in aliases if name in known] for column, aliases in kind.names.items()}
    return {column: some[0] for column, some in found.items() if some}


def _split(line: str, delimiter: str | None, more: Iterable[str] = ()) -> list[str]:
    """Return the fields of a line; a quoted field of CSV continues on the next lines."""
    if delimiter is None:
        return line.split()
    if delimiter == "\t":
        matches = ((field, _QUOTED.fullmatch(field)) for field in line.split("\t"))
        return [field if match is None else match[1].replace('""', '"') for field, match in matches]
    try:
        feed = (f"{one}\n" for one in chain([line], more))
        return next(csv.reader(feed, delimiter=delimiter, strict=True, skipinitialspace=True))
    except csv.Error as error:
        raise ValueError(error) from error


def _table_rows(place: str, kind: RowKind, table: _Table, found: _Lines) -> Iterator[Row]:
    for number, line in found:
        if _is_comment(line):
            continue
        where = f"{place}:{number}"
        try:
            if not kind.values and not table.header:
                fields = line.split("\t", 1)
            else:
                fields = _split(line, table.delimiter, (text for _, text in found))
            if len(fields) != table.width:
                raise ValueError(f"the number of columns is {len(fields)}, not {table.width}")
        except ValueError as error:
            raise kind.invalid(where, error) from error
        yield where, {column: fields[i].strip() for column, i in table.places.items()}


def _json_rows(place: str, kind: RowKind, first: tuple[int, str], found: _Lines) -> Iterator[Row]:
    """Yield the rows of JSON lines, or of one value that takes several lines."""
    for number, line in chain([first], found):
        if _is_comment(line):
            continue
        where = f"{place}:{number}"
        try:
            if number == first[0] and not _is_json(line):
                line = "\n".join([line, *(text for _, text in found)])
            value = json.loads(line, object_pairs_hook=_object)
        except (ValueError, RecursionError) as error:
            raise kind.invalid(where, f"not JSON: {error}") from error
        for row in value if isinstance(value, list) else [value]:
            yield from _object_rows(where, kind, row)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object without repeated keys; Python's JSON parser would keep the last value without a word."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has a key twice")
    return found


def _object_rows(where: str, kind: RowKind, value: Any) -> Iterator[Row]:
    """Yield the row of an object, or the rows of ``{query: {document: number}}``."""
    if not isinstance(value, dict):
        raise kind.invalid(where, "no object")
    places = _places(value, kind)
    if places.keys() >= kind.required:
        yield where, {column: value[name] for column, name in places.items()}
    elif kind.values and all(isinstance(one, dict) for one in value.values()):
        for query_id, documents in value.items():
            for doc_id, number in documents.items():
                yield where, {"query_id": query_id, "doc_id": doc_id, kind.values[0]: number}
    else:
        raise kind.invalid(where, f"it has no {', '.join(sorted(kind.required - places.keys()))}")


def _parquet_rows(place: str, kind: RowKind, options: Mapping[str, str] | None) -> Iterator[Row]:
    try:
        with open_binary(place, options) as raw, pq.ParquetFile(raw) as file:
            rows = (row for batch in file.iter_batches(4096) for row in batch.to_pylist())
            for number, row in enumerate(rows, start=1):
                yield from _object_rows(f"{place}:{number}", kind, row)
    except pa.ArrowException as error:
        raise SourceError(f"{place} is no readable Parquet file ({error}); write the file again") from error
