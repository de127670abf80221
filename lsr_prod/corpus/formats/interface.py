"""Interface of a source format: a record of plain functions that its module defines and ``registry`` lists."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa

from lsr_prod.config import SourceSettings
from lsr_prod.corpus.rows import BadRow
from lsr_prod.corpus.slices import Slice
from lsr_prod.corpus.source_file import SourceFile


class Record(NamedTuple):
    """One record of a file, not validated yet.

    Attributes:
        values: column -> value as JSON has it, or a ``TypedValue``; a string may come as bytes that were never
            checked to be UTF-8.
        line: bytes of the record in the file; None for typed columns.
    """

    values: Mapping[str, Any]
    line: bytes | None = None


Decoded = tuple[int, Record | BadRow | None]
"""Position (byte of a text format, row number of other formats); the record, or None if it is not wanted."""


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """Values to read from a slice, and their form.

    Attributes:
        source: the section ``source``; a format takes its own options from it.
        columns: columns to read; text formats may return more.
        limit: longest accepted record of a text format in bytes.
        ids: typed columns whose integers become their decimal text.
        lists: lists in typed columns become Python lists; False: a list is a ``TypedValue``.
        wants: returns whether the document with an id is wanted. Formats of typed columns return None in place of
            other documents and do not read their texts; text formats ignore it.
        remedy: what to do if the file is damaged and ``source.on_damage`` is fail.
    """

    source: SourceSettings
    columns: frozenset[str]
    limit: int
    ids: frozenset[str] = frozenset()
    lists: bool = False
    wants: Callable[[str], bool] | None = None
    remedy: str = "repair the file, or leave it out"


@dataclass(frozen=True, slots=True)
class Footer:
    """Columns and row groups that a file describes itself.

    Attributes:
        schema: names and types of the columns.
        groups: (rows, bytes) of each row group.
    """

    schema: pa.Schema
    groups: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class SourceFormat:
    """A format of source files.

    Attributes:
        name: value of ``source.format``, and of ``SourceFile.format`` without its compression.
        suffixes: file name endings of the format in lower case; without any, only a folder format names such files.
        records: decodes the records of a slice from the opened, decompressed file.
        splittable: returns whether an uncompressed file may be cut at any byte; a line belongs to the slice that has
            its first byte.
        compressible: files may be compressed (``.gz``, ``.zst``); a compressed file is never cut.
        training_data: files may hold training data, whose values can be lists.
        footer: reads the footer of a file, which is then cut between row groups and whose columns are checked before
            anything is written; None: files have no footer.
    """

    name: str
    suffixes: tuple[str, ...]
    records: Callable[[Any, Slice, ReadRequest], Iterator[Decoded]]
    splittable: Callable[[SourceSettings], bool] = lambda _: False
    compressible: bool = True
    training_data: bool = True
    footer: Callable[[BinaryIO], Footer] | None = None


@dataclass(frozen=True, slots=True)
class FolderFormat:
    """A format of folders that describe their files.

    Attributes:
        name: value of ``source.format``.
        recognizes: returns whether the folder at a path has this format; arguments: path, options of the store.
        files: pins the files of a folder; raises ConfigError if it cannot be read. Arguments: path, settings, options.
        versioned: ``source.version`` selects a version.
        documents: the folder holds documents; data of other kinds (training data) does not look for this format.
    """

    name: str
    recognizes: Callable[[str, dict[str, str]], bool]
    files: Callable[[str, SourceSettings, dict[str, str]], Iterator[SourceFile]]
    versioned: bool = False
    documents: bool = True
