"""Parquet files, cut between row groups, and files of tables: their state, and columns with other names or numbers."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from lsr_prod.corpus import folders, pinned_file
from lsr_prod.corpus.formats import arrow, interface
from lsr_prod.storage import Entry

# Bytes of a column of a row group that are read at once; Spark's times, which have microseconds from year 1 on.
_OPTIONS = {"buffer_size": 1 << 20, "page_checksum_verification": True, "coerce_int96_timestamp_unit": "us"}
_DICTIONARY_PAGE = 2  # of the enumeration PageType
_LARGEST_PAGE = 1 << 28
Columns = tuple[tuple[str, str | int], ...]
_NUMBER = b"PARQUET:field_id"


def parquet_batches(handle: BinaryIO, start: int, stop: int, columns: frozenset[str]) -> Iterator[pa.RecordBatch]:
    """Yield the row groups ``[start, stop)``, or all if ``stop`` is negative, as small batches of the given columns."""
    with pq.ParquetFile(handle, **_OPTIONS) as parquet:
        names = arrow.select_columns(parquet.schema_arrow, columns)
        # Group by group: a batch of two groups would lose good rows of the first one if the second one is damaged.
        for group in range(start, parquet.num_row_groups if stop < 0 else stop):
            rows = arrow.rows_at_once(_bytes_of_row(handle, parquet.metadata.row_group(group), columns))
            for batch in parquet.iter_batches(rows, row_groups=[group], columns=names, use_threads=False):
                yield arrow.flatten(batch, names)


def _bytes_of_row(handle: BinaryIO, group: pq.RowGroupMetaData, columns: frozenset[str]) -> int:
    """Return a bound on the bytes of a row: every value may be the whole dictionary, whose page comes first."""
    widest = 0
    for i in range(group.num_columns):
        column = group.column(i)
        path = column.path_in_schema  # of a nested column: its name, a dot, and more
        if column.num_values and any(path == name or path.startswith(f"{name}.") for name in columns):
            start = column.data_page_offset
            if column.has_dictionary_page:
                start = min(start, column.dictionary_page_offset)
            kind, size = _page(handle, start)
            if kind == _DICTIONARY_PAGE and size > _LARGEST_PAGE:
                raise pinned_file.DamagedFileError(f"the dictionary of column {path} declares {size} bytes")
            average = column.total_uncompressed_size // max(group.num_rows, 1)
            widest += max(average, size if kind == _DICTIONARY_PAGE else 0)
    return widest


def _page(handle: BinaryIO, start: int) -> tuple[int, int]:
    """Return type and uncompressed size of a page: the first two fields of its header, in Thrift's compact protocol."""
    handle.seek(start)
    header = handle.read(16)
    numbers, at = [], 0
    for _ in range(2):
        if header[at : at + 1] != b"\x15":  # the next field, an i32
            raise pinned_file.DamagedFileError(f"there is no header of a page at byte {start}")
        number, shift, at = 0, 0, at + 1
        while at < len(header):
            number |= (header[at] & 0x7F) << shift
            shift, at = shift + 7, at + 1
            if header[at - 1] < 0x80:
                break
        numbers.append(number >> 1)  # zigzag: both numbers are positive
    return numbers[0], numbers[1]


def _records(handle: BinaryIO, piece: pinned_file.Slice, request: interface.ReadRequest) -> Iterator[interface.Decoded]:
    if piece.file.columns:
        batches = _table_batches(handle, piece, request.columns)
    else:
        batches = parquet_batches(handle, piece.start, piece.stop, request.columns)
    return arrow.typed_records(batches, piece.first_row, dict(piece.file.constants), request)


def _table_batches(handle: BinaryIO, piece: pinned_file.Slice, columns: frozenset[str]) -> Iterator[pa.RecordBatch]:
    """Yield the row groups of a slice of a table whose files have other names for its columns."""
    inside = names_in_file(pq.read_schema(handle), piece.file.columns)
    names = {inside[name]: name for name in columns & inside.keys()}
    for batch in parquet_batches(handle, piece.start, piece.stop, frozenset(names)):
        yield batch.rename_columns([names[name] for name in batch.schema.names])


def _footer(handle: BinaryIO) -> interface.Footer:
    with pq.ParquetFile(handle) as parquet:
        footer = parquet.metadata
        groups = map(footer.row_group, range(footer.num_row_groups))
        sizes = tuple((group.num_rows, group.total_byte_size) for group in groups)
        return interface.Footer(parquet.schema_arrow, sizes)


def at_location(file: pinned_file.SourceFile, entries: Mapping[str, Entry]) -> pinned_file.SourceFile:
    """Return a file of a table with the facts of its location, after a comparison with the listing of the folder."""
    entry = entries.get(file.name)
    if entry is None or entry.size != file.size:
        state = "was deleted" if entry is None else f"has {entry.size} bytes instead of {file.size}"
        raise folders.source_error(
            f"{file.location}, a file of the table at this version, {state}",
            "read a version with all of its files, or restore the table",
        )
    if entry.etag is not None:
        return replace(file, etag=entry.etag)
    facts = Path(file.location).stat()
    return replace(file, mtime_ns=facts.st_mtime_ns, inode=facts.st_ino)


def names_in_file(schema: pa.Schema, columns: Columns) -> dict[str, str]:
    """Return the name or dotted path in a file of every column of a table that the file has."""
    return {name: path for name, path, _ in _found(schema, columns)}


def named_as_in_table(schema: pa.Schema, columns: Columns) -> pa.Schema:
    """Return the columns of a file with their names in the table."""
    return pa.schema([field.with_name(name) for name, _, field in _found(schema, columns)]) if columns else schema


def _found(schema: pa.Schema, columns: Columns) -> Iterator[tuple[str, str, pa.Field]]:
    numbered = dict(_numbered(schema))
    for name, inside in columns:
        # Files without numbers were written by another program, and added to the table with the names that it had.
        path = inside if isinstance(inside, str) else numbered.get(inside, "") if numbered else name
        if (field := arrow.field_at(schema, path)) is not None:
            yield name, path, field


def _numbered(fields: Iterable[pa.Field], above: str = "") -> Iterator[tuple[int, str]]:
    for field in fields:
        if _NUMBER in (field.metadata or {}):
            yield int(field.metadata[_NUMBER]), above + field.name
        if pa.types.is_struct(field.type):
            yield from _numbered(field.type, f"{above}{field.name}.")


PARQUET = interface.SourceFormat("parquet", (".parquet",), _records, compressible=False, footer=_footer)
