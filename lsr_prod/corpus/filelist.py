"""The files of a corpus as an Arrow table, and their slices: ranges of bytes, row groups, or whole files.

The table of a million files takes a few hundred MB.
"""

import hashlib
import io
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsr_prod.config import SourceSettings
from lsr_prod.corpus import compression, lines
from lsr_prod.corpus.formats import arrow, parquet
from lsr_prod.corpus.formats.interface import Footer
from lsr_prod.corpus.formats.registry import file_format
from lsr_prod.corpus.pinned_file import COMPRESSIONS, WHOLE, DamagedFileError, Slice, SourceFile, open_pinned
from lsr_prod.errors import ConfigError
from lsr_prod.storage.deletion_vector import VECTOR_TYPE, DeletionVector
from lsr_prod.storage.formats.digests import canonical_json

READ, KEPT, REMOVED = 0, 1, 2
"""State of a file in a plan: read it; keep the rows of an earlier plan; delete its rows."""

_SCHEMA = pa.schema(
    [
        ("state", pa.int8()),
        ("identity", pa.binary(32)),  # sha256 of ``SourceFile.identity``; its first 8 bytes are ``SourceFile.key``
        ("uri", pa.string()),
        ("name", pa.string()),
        ("format", pa.string()),
        ("size", pa.int64()),
        ("tag", pa.string()),
        ("constants", pa.string()),
        ("columns", pa.string()),
        ("deleted", VECTOR_TYPE),
        ("etag", pa.string()),
        ("mtime_ns", pa.int64()),
        ("inode", pa.uint64()),
    ]
)
_OF_TABLES = ("columns", "deleted")  # absent in plans of earlier releases
_FACTS = {"etag": "", "mtime_ns": 0, "inode": 0}  # of a location; a reader compares the content if they are unknown

_BATCH = 8192  # files that are decoded at once
_THREADS = 32  # footers read at once: each waits for its store, and none needs much of a core
_BLOCK = 1 << 16  # bytes that are read at once
_AHEAD = 4096  # files whose slices are held at once


def list_files(files: Iterable[SourceFile]) -> pa.Table:
    """Return the files as a table, in order, with the state ``READ``."""
    left = iter(files)
    return pa.Table.from_batches(map(_batch, iter(lambda: list(islice(left, _BATCH)), [])), _SCHEMA)


def _batch(files: list[SourceFile]) -> pa.RecordBatch:
    given = {
        "state": [READ] * len(files),
        "identity": [hashlib.sha256(canonical_json(file.identity())).digest() for file in files],
        "constants": [json.dumps(file.constants) if file.constants else None for file in files],
        "columns": [json.dumps(file.columns) if file.columns else None for file in files],
        "deleted": [asdict(file.deleted) if file.deleted else None for file in files],
    }
    columns = [given.get(name) or [getattr(file, name) for file in files] for name in _SCHEMA.names]
    arrays = [pa.array(values, kind) for values, kind in zip(columns, _SCHEMA.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def file_of(row: Mapping[str, Any]) -> SourceFile:
    """Return the file of a row of the table."""
    constants, columns = (tuple(map(tuple, json.loads(row[key] or "[]"))) for key in ("constants", "columns"))
    deleted = DeletionVector(**row["deleted"]) if row["deleted"] else None
    facts = {name: row[name] for name in _FACTS}
    place = (row["uri"], row["name"], row["format"], row["size"], row["tag"])
    return SourceFile(*place, constants, columns, deleted, **facts)


def iterate_files(files: pa.Table) -> Iterator[tuple[int, SourceFile]]:
    """Yield (ordinal, file) of every file that is read, in order; one batch is in memory at a time."""
    first = 0
    for batch in files.to_batches(max_chunksize=_BATCH):
        rows = pc.indices_nonzero(pc.equal(batch["state"], READ))
        found = batch.take(rows).to_pylist()
        yield from ((first + ordinal, file_of(row)) for ordinal, row in zip(rows.to_pylist(), found, strict=True))
        first += batch.num_rows


def mark(files: pa.Table, states: np.typing.NDArray[np.int8]) -> pa.Table:
    """Return the files with new states."""
    return files.set_column(0, _SCHEMA.field("state"), pa.array(states, pa.int8()))


def relocate(files: pa.Table, current: pa.Table) -> pa.Table:
    """Return the files with the locations of the same files in another list."""
    rest = files.slice(current.num_rows)
    for name in ("uri", "name", *_FACTS):
        field = _SCHEMA.field(name)
        column = pa.chunked_array([*current[name].chunks, *rest[name].chunks], field.type)
        files = files.set_column(_SCHEMA.get_field_index(name), field, column)
    return files


def without_location_facts(files: pa.Table) -> pa.Table:
    """Return the files as they are stored: what holds for one run at one location is not worth keeping."""
    return files.drop_columns([*_FACTS])


def with_location_facts(files: pa.Table) -> pa.Table:
    """Return stored files with unknown facts of their locations."""
    absent = dict.fromkeys(name for name in _OF_TABLES if name not in files.column_names)
    for name, unknown in (absent | _FACTS).items():
        field = _SCHEMA.field(name)
        files = files.append_column(field, pa.array([unknown] * files.num_rows, field.type))
    return files


def file_keys(files: pa.Table) -> np.typing.NDArray[np.int64]:
    """Return ``SourceFile.key`` of every file, int64 [files]."""
    return np.ascontiguousarray(_identities(files)[:, :8]).view(">i8").ravel().astype(np.int64)


def files_digest(files: pa.Table) -> str:
    """Return the sha256 (hex) over state and identity of every file, in order; folders do not matter."""
    states = files["state"].to_numpy().astype(np.uint8)
    return hashlib.sha256(np.column_stack([states, _identities(files)]).tobytes()).hexdigest()


def _identities(files: pa.Table) -> np.typing.NDArray[np.uint8]:
    """Return the identities, uint8 [files, 32]."""
    chunks = [np.frombuffer(_values(chunk), np.uint8) for chunk in files["identity"].chunks]
    return np.concatenate([np.empty(0, np.uint8), *chunks]).reshape(-1, 32)


def _values(chunk: pa.Array) -> memoryview:
    return memoryview(chunk.buffers()[1])[32 * chunk.offset : 32 * (chunk.offset + len(chunk))]


def cut_files(
    files: Iterable[tuple[int, SourceFile]], source: SourceSettings, limit: int, options: dict[str, str]
) -> Iterator[Slice]:
    """Yield the slices of every file, in order.

    The footers of large files are read, many at a time, to find their row groups. The footer of the first file that has
    one is always read, or the header of the first one that has a header, and its columns are compared with the
    settings: a wrong name is found before anything is written. Other files may have other columns; the reader
    validates their rows.
    """
    left = iter(files)
    checked = headed = False
    with ThreadPoolExecutor(_THREADS) as pool:
        while some := list(islice(left, _AHEAD)):
            footers: dict[int, Future[Footer]] = {}
            for ordinal, file in some:
                if file_format(file.format).footer is not None and file.size and (file.size > limit or not checked):
                    footers[ordinal] = pool.submit(partial(_checked_footer, file, source, options, check=not checked))
                    checked = True
            for file in (file for _, file in some if file.size and file_format(file.format).header and not headed):
                _check_header(file, source, options)
                headed = True
            for ordinal, file in some:
                found = footers[ordinal].result() if ordinal in footers else None
                if found is not None and file.size > limit:
                    yield from _row_groups(ordinal, file, found.groups, limit)
                elif file_format(file.format).footer is not None and file.size:
                    yield Slice(file, ordinal, 0, WHOLE, 0, file.size)
                else:
                    packed = file.format.endswith(COMPRESSIONS)
                    step = limit if not packed and file_format(file.format).splittable(source) else max(file.size, 1)
                    for start in range(0, file.size, step):
                        stop = min(start + step, file.size)
                        yield Slice(file, ordinal, start, stop, 0, stop - start)


def read_footer(file: SourceFile, options: dict[str, str], *, field: str) -> Footer:
    """Read the footer of a file whose format has one."""
    found = file_format(file.format)
    assert found.footer is not None
    try:
        with open_pinned(file, options) as watched, io.BufferedReader(watched, _BLOCK) as handle:
            footer = found.footer(handle)
            return replace(footer, schema=parquet.named_as_in_table(footer.schema, file.columns))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:  # the second one: a type, such as int128
        problem = f"{file.location} is not a readable {found.name} file ({error})"
        raise ConfigError(field, problem, "fix the file or leave it out") from error


def declared_columns(file: SourceFile, source: SourceSettings, options: dict[str, str]) -> pa.Schema | None:
    """Return the columns that a file declares; None: only its records have names, or its header cannot be read."""
    if file_format(file.format).footer is not None:
        return _with_constants(file, read_footer(file, options, field="source.paths").schema)
    names = _header(file, source, options) if file_format(file.format).header is not None else []
    return _with_constants(file, pa.schema(dict.fromkeys(names, pa.string()))) if names else None


def _with_constants(file: SourceFile, schema: pa.Schema) -> pa.Schema:
    """Return the columns of a file with those whose values its table has."""
    return pa.schema([*schema, *((name, pa.string()) for name, _ in file.constants if name not in schema.names)])


def has_column(columns: pa.Schema, name: str) -> bool:
    """Return whether a name, or a dotted path, is that of a column."""
    return name in columns.names or arrow.field_at(columns, name) is not None


def _checked_footer(file: SourceFile, source: SourceSettings, options: dict[str, str], *, check: bool) -> Footer:
    footer = read_footer(file, options, field="source.paths")
    if check:
        _check_columns(file, _with_constants(file, footer.schema), source)
    return footer


def _check_header(file: SourceFile, source: SourceSettings, options: dict[str, str]) -> None:
    columns = declared_columns(file, source, options)
    if columns is None:
        return
    if len(columns) == 1 and source.column(source.id_field) not in columns.names:
        for mark in (mark for mark in ";\t|,:" if mark in columns.names[0]):
            problem = f"the header of {file.location} is a single column, {columns.names[0][:80]!r}"
            raise ConfigError("source.csv.delimiter", problem, f"set it to {mark!r} if that is between the columns")
    _check_columns(file, columns, source)


def _header(file: SourceFile, source: SourceSettings, options: dict[str, str]) -> list[str]:
    """Return the names in the header of a file; none if it cannot be read: the reader will say where and why."""
    read = file_format(file.format).header
    assert read is not None
    if source.csv.header:
        return source.csv.header
    with open_pinned(file, options) as watched, io.BufferedReader(watched, _BLOCK) as handle:
        try:
            with compression.decompressed(handle, file.format) as plain:
                return read(plain, source)
        except lines.WrongEncodingError as error:
            problem, _, remedy = str(error).partition("; ")
            raise ConfigError("source.csv.encoding", f"{file.location}: {problem}", remedy) from error
        except (DamagedFileError, EOFError, zlib.error, pa.ArrowException, OSError):  # the last one: no zstd
            if watched.failure is not None:
                raise
            return []


def _check_columns(file: SourceFile, columns: pa.Schema, source: SourceSettings) -> None:
    remedy = f"use one of its columns: {', '.join(sorted(columns.names))}"
    if not has_column(columns, column := source.column(source.id_field)):
        raise ConfigError("source.id_field", f"{file.location} has no column {column}", remedy)
    wanted = [source.column(field) for field in source.text_fields]
    if not any(has_column(columns, text) for text in wanted):
        raise ConfigError("source.text_fields", f"{file.location} has none of the columns {', '.join(wanted)}", remedy)


def _row_groups(ordinal: int, file: SourceFile, groups: Sequence[tuple[int, int]], limit: int) -> Iterator[Slice]:
    start = size = first_row = rows = 0
    for group, (group_rows, group_size) in enumerate(groups):
        size += group_size
        rows += group_rows
        if size >= limit or group == len(groups) - 1:
            yield Slice(file, ordinal, start, group + 1, first_row, size)
            start, size, first_row = group + 1, 0, rows
