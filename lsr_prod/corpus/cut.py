"""Cut files into slices: ranges of bytes, row groups, or whole files."""

import io
import zlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import islice

import pyarrow as pa

from lsr_prod.config import SourceSettings
from lsr_prod.corpus.compression import decompressed
from lsr_prod.corpus.formats.arrow import field_at
from lsr_prod.corpus.formats.interface import Footer
from lsr_prod.corpus.formats.parquet import named_as_in_table
from lsr_prod.corpus.formats.registry import file_format
from lsr_prod.corpus.lines import WrongEncodingError
from lsr_prod.corpus.pinned_file import COMPRESSIONS, WHOLE, DamagedFileError, Slice, SourceFile, open_pinned
from lsr_prod.errors import ConfigError

_THREADS = 32  # footers read at once: each waits for its store, and none needs much of a core
_BLOCK = 1 << 16
_AHEAD = 4096  # files whose slices are held at once


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
            return replace(footer, schema=named_as_in_table(footer.schema, file.columns))
    except (pa.ArrowInvalid, OSError) as error:
        raise ConfigError(
            field, f"{file.location} is not a readable {found.name} file ({error})", "fix the file or leave it out"
        ) from error


def _checked_footer(file: SourceFile, source: SourceSettings, options: dict[str, str], *, check: bool) -> Footer:
    footer = read_footer(file, options, field="source.paths")
    if check:
        paths = {column for column in map(source.column, source.fields) if field_at(footer.schema, column) is not None}
        _check_columns(file, {*footer.schema.names, *paths, *(name for name, _ in file.constants)}, source)
    return footer


def _check_header(file: SourceFile, source: SourceSettings, options: dict[str, str]) -> None:
    names = source.csv.header or _header(file, source, options)
    present = {*names, *(name for name, _ in file.constants)}
    if len(names) == 1 and source.column(source.id_field) not in present:
        for mark in (mark for mark in ";\t|,:" if mark in names[0]):
            raise ConfigError(
                "source.csv.delimiter",
                f"the header of {file.location} is a single column, {names[0][:80]!r}",
                f"set it to {mark!r} if that is between the columns",
            )
    if names:
        _check_columns(file, present, source)


def _header(file: SourceFile, source: SourceSettings, options: dict[str, str]) -> list[str]:
    """Return the names in the header of a file; none if it cannot be read: the reader will say where and why."""
    read = file_format(file.format).header
    assert read is not None
    with open_pinned(file, options) as watched, io.BufferedReader(watched, _BLOCK) as handle:
        try:
            with decompressed(handle, file.format) as plain:
                return read(plain, source)
        except WrongEncodingError as error:
            problem, _, remedy = str(error).partition("; ")
            raise ConfigError("source.csv.encoding", f"{file.location}: {problem}", remedy) from error
        except (DamagedFileError, EOFError, zlib.error, pa.ArrowException, OSError):  # the last one: no zstd
            if watched.failure is not None:
                raise
            return []


def _check_columns(file: SourceFile, present: set[str], source: SourceSettings) -> None:
    remedy = f"use one of its columns: {', '.join(sorted(present))}"
    if (column := source.column(source.id_field)) not in present:
        raise ConfigError("source.id_field", f"{file.location} has no column {column}", remedy)
    wanted = [source.column(field) for field in source.text_fields]
    if not present & set(wanted):
        raise ConfigError("source.text_fields", f"{file.location} has none of the columns {', '.join(wanted)}", remedy)


def _row_groups(ordinal: int, file: SourceFile, groups: Sequence[tuple[int, int]], limit: int) -> Iterator[Slice]:
    start = size = first_row = rows = 0
    for group, (group_rows, group_size) in enumerate(groups):
        size += group_size
        rows += group_rows
        if size >= limit or group == len(groups) - 1:
            yield Slice(file, ordinal, start, group + 1, first_row, size)
            start, size, first_row = group + 1, 0, rows
