"""Interface of a source format: a record of plain functions that its module defines and ``registry`` lists."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa

from lsr_prod.config import SourceSettings
from lsr_prod.corpus import pinned_file, source_rows


class Record(NamedTuple):
    """One record of a file, not validated yet."""

    # column -> value as JSON has it, or a ``TypedValue``; a string may come as bytes that were never checked to
    # be UTF-8
    values: Mapping[str, Any]
    line: bytes | None = None  # bytes of the record in the file; None for typed columns


Decoded = tuple[int, Record | source_rows.BadRow | None]
"""Position (byte of a text format, row number of other formats); the record, or None if it is not wanted."""


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """Values to read from a slice, and their form."""

    source: SourceSettings  # the section ``source``; a format takes its own options from it
    columns: frozenset[str]  # columns to read; text formats may return more
    limit: int  # longest accepted record of a text format in bytes
    ids: frozenset[str] = frozenset()  # typed columns whose integers become their decimal text
    lists: bool = False  # lists in typed columns become Python lists; False: a list is a ``TypedValue``
    # returns whether the document with an id is wanted. Formats of typed columns return None in place of other
    # documents and do not read their texts; text formats ignore it.
    wants: Callable[[str], bool] | None = None
    # what to do if the file is damaged and ``source.on_damage`` is fail
    remedy: str = "repair the file, or leave it out"


@dataclass(frozen=True, slots=True)
class Footer:
    """Columns and row groups that a file describes itself."""

    schema: pa.Schema  # names and types of the columns
    groups: tuple[tuple[int, int], ...]  # (rows, bytes) of each row group


@dataclass(frozen=True, slots=True)
class SourceFormat:
    """A format of source files."""

    name: str  # value of ``source.format``, and of ``SourceFile.format`` without its compression
    # file name endings of the format in lower case; without any, only a folder format names such files
    suffixes: tuple[str, ...]
    # decodes the records of a slice from the opened, decompressed file
    records: Callable[[Any, pinned_file.Slice, ReadRequest], Iterator[Decoded]]
    # returns whether an uncompressed file may be cut at any byte; a line belongs to the slice that has its first
    # byte
    splittable: Callable[[SourceSettings], bool] = lambda _: False
    compressible: bool = True  # files may be compressed (``.gz``, ``.zst``); a compressed file is never cut
    training_data: bool = True  # files may hold training data, whose values can be lists
    # reads the footer of a file, which is then cut between row groups and whose columns are checked before
    # anything is written; None: files have no footer
    footer: Callable[[BinaryIO], Footer] | None = None
    # reads the column names of an opened, decompressed file, which are checked too; None: its rows have the names
    header: Callable[[Any, SourceSettings], list[str]] | None = None


@dataclass(frozen=True, slots=True)
class FolderFormat:
    """A format of folders that describe their files."""

    name: str  # value of ``source.format``
    # returns whether the folder at a path has this format; arguments: path, options of the store
    recognizes: Callable[[str, dict[str, str]], bool]
    # pins the files of a folder; raises ConfigError if it cannot be read. Arguments: path, settings, options.
    files: Callable[[str, SourceSettings, dict[str, str]], Iterator[pinned_file.SourceFile]]
    # returns the columns of the folder at the version, partition columns included; the same arguments as ``files``;
    # None: only the rows of its files have types
    schema: Callable[[str, SourceSettings, dict[str, str]], pa.Schema] | None = None
    versioned: bool = False  # ``source.version`` selects a version
    # the folder holds documents; data of other kinds (training data) does not look for this format
    documents: bool = True
