"""Files cut into slices: ranges of bytes, row groups of Parquet, and whole what can be read only from its start."""

import json
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lsr_prod.config import SourceSettings
from lsr_prod.corpus.source_file import SourceFile, cut_of
from lsr_prod.errors import ConfigError
from lsr_prod.storage import Store

__all__ = ["WHOLE", "Slice", "cut_files"]

WHOLE = -1
"""``Slice.stop`` of a Parquet file whose footer was not read: all of its row groups."""

_THREADS = 32  # footers read at once: each waits for its store, and none needs much of a core
_AHEAD = 4096  # files whose slices are held at once


@dataclass(frozen=True, slots=True)
class Slice:
    """What one read task reads; it names all of that, so no list of files travels with it.

    Attributes:
        file: the pinned file.
        ordinal: its place in the plan.
        start: first byte of text, first row group of Parquet.
        stop: the one after the last, or ``WHOLE``. A line belongs to the slice that holds its first byte; what is
            compressed as a whole is never cut.
        first_row: Parquet: rows before ``start``.
        size: source bytes, for balance.
    """

    file: SourceFile
    ordinal: int
    start: int
    stop: int
    first_row: int
    size: int

    def to_json(self) -> dict[str, Any]:
        """Flat and plain: a row of a dataset."""
        file = asdict(self.file) | {"constants": json.dumps(self.file.constants)}
        own = {name: getattr(self, name) for name in ("ordinal", "start", "stop", "first_row", "size")}
        return {f"file.{name}": value for name, value in file.items()} | own

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> "Slice":
        """Read what ``to_json`` wrote."""
        file = {name.removeprefix("file."): value for name, value in row.items() if name.startswith("file.")}
        constants = tuple((name, value) for name, value in json.loads(file.pop("constants")))
        own = {name: value for name, value in row.items() if not name.startswith("file.")}
        return cls(file=SourceFile(**file, constants=constants), **own)


def cut_files(
    files: Iterable[tuple[int, SourceFile]], source: SourceSettings, limit: int, options: dict[str, str]
) -> Iterator[Slice]:
    """Slices of every file, in order.

    The footers of large Parquet files are read, many at a time, to find their row groups. That of the first Parquet
    file is read too, and its columns are held against the settings: a wrong name is found before anything is written.
    Other files may differ from it; the reader judges their rows.

    Args:
        files: (ordinal, file); may be a generator.
        source: names the columns.
        limit: bytes of a slice, about; a smaller Parquet file is one slice.
        options: options of the object store.

    Raises:
        ConfigError: the first Parquet file lacks the id or every text field, or a footer that is read is none.
    """
    left = iter(files)
    footer = partial(_read_footer, source=source, options=options)
    checked = False
    with ThreadPoolExecutor(_THREADS) as pool:
        while some := list(islice(left, _AHEAD)):
            footers: dict[int, Future[list[tuple[int, int]]]] = {}
            for ordinal, file in some:
                if file.format == "parquet" and file.size and (file.size > limit or not checked):
                    footers[ordinal] = pool.submit(footer, file, check=not checked)
                    checked = True
            for ordinal, file in some:
                found = footers[ordinal].result() if ordinal in footers else None
                if found is not None and file.size > limit:
                    yield from _row_groups(ordinal, file, found, limit)
                elif file.format == "parquet" and file.size:
                    yield Slice(file, ordinal, 0, WHOLE, 0, file.size)
                else:
                    step = limit if cut_of(file, source) == "bytes" else max(file.size, 1)
                    yield from _ranges(ordinal, file, step)


def _ranges(ordinal: int, file: SourceFile, step: int) -> Iterator[Slice]:
    for start in range(0, file.size, step):
        stop = min(start + step, file.size)
        yield Slice(file, ordinal, start, stop, 0, stop - start)


def _row_groups(ordinal: int, file: SourceFile, groups: list[tuple[int, int]], limit: int) -> Iterator[Slice]:
    start = size = first_row = rows = 0
    for group, (group_rows, group_size) in enumerate(groups):
        size += group_size
        rows += group_rows
        if size >= limit or group == len(groups) - 1:
            yield Slice(file, ordinal, start, group + 1, first_row, size)
            start, size, first_row = group + 1, 0, rows


def _read_footer(
    file: SourceFile, *, source: SourceSettings, options: dict[str, str], check: bool
) -> list[tuple[int, int]]:
    """(rows, bytes) of every row group."""
    try:
        with Store(file.uri, options).open_reader(file.name) as handle:
            parquet = pq.ParquetFile(handle)
            footer, names = parquet.metadata, parquet.schema_arrow.names
    except (pa.ArrowInvalid, OSError) as error:
        raise ConfigError(
            "source.paths", f"{file.location} is no readable Parquet file ({error})", "mend it or leave it out"
        ) from error
    if check:
        _check_columns(file, {*names, *(name for name, _ in file.constants)}, source)
    groups = map(footer.row_group, range(footer.num_row_groups))
    return [(group.num_rows, group.total_byte_size) for group in groups]


def _check_columns(file: SourceFile, present: set[str], source: SourceSettings) -> None:
    remedy = f"there are: {', '.join(sorted(present))}"
    if (column := source.column(source.id_field)) not in present:
        raise ConfigError("source.id_field", f"{file.location} has no column {column}", remedy)
    wanted = [source.column(field) for field in source.text_fields]
    if not present & set(wanted):
        raise ConfigError("source.text_fields", f"{file.location} has none of the columns {', '.join(wanted)}", remedy)
