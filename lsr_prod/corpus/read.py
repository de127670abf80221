"""Slices become records, and records of a corpus become validated rows: streaming, in bounded memory, without loss."""

import io
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from lsr_prod.cluster.workers import has_several_nodes, on_every_node, spread, summarize_nodes
from lsr_prod.config import SourceSettings
from lsr_prod.corpus.compression import Decompressor, Readable, decompressed
from lsr_prod.corpus.formats import interface, registry
from lsr_prod.corpus.pinned_file import (
    WHOLE,
    DamagedFileError,
    Slice,
    SourceFile,
    WatchedFile,
    check_pinned,
    open_pinned,
)
from lsr_prod.corpus.source_rows import DAMAGED_FILE, BadRow, RowBatch, shorten, validate
from lsr_prod.errors import ArtifactError, ConfigError, SourceError
from lsr_prod.storage import Store, deletion_vector, is_remote

_BLOCK = 1 << 20
# Exceptions of the decoders for bytes that they do not understand. Arrow and gzip raise a plain OSError for that too;
# failures of the disk or the network are recognized by their origin (``WatchedFile``).
_DAMAGE = (pa.ArrowException, EOFError, zlib.error, UnicodeDecodeError, DamagedFileError, OSError)
_REMEDY = (
    "nothing of its wave was committed; repair the file and run again (with --abandon if waves of this plan are "
    "committed), or set source.on_damage: skip, which quarantines what cannot be read and counts it as bad"
)
_FOLDERS = 64  # at most one file of each is looked up, besides files all over the source
_FILES = 16


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads slices of one plan."""

    source: SourceSettings  # the section ``source``
    cells: int  # number of cells that documents are assigned to
    options: dict[str, str]  # options of the object store
    keep: frozenset[int] | None = None  # cells to read, at least one; None: all

    def read(self, piece: Slice) -> Iterator[pa.Table]:
        """Yield tables of ``rows.row_schema``, a few MB each, in source order."""
        source = self.source
        batch = RowBatch(source, piece.file, piece.ordinal, self.cells, self.keep)
        request = read_request(source, batch.wants if self.keep is not None else None)
        for position, record in read_records(piece, request, self.options):
            if record is not None:
                row = record if isinstance(record, BadRow) else validate(record.values, source, line=record.line)
                batch.add(position, row)
            if batch.full:
                yield batch.take()
        yield batch.take()


def read_request(source: SourceSettings, wants: Callable[[str], bool] | None = None) -> interface.ReadRequest:
    """Return the values to read for documents."""
    return interface.ReadRequest(
        source=source,
        columns=frozenset(source.column(name) for name in source.fields),
        limit=16 * source.max_text_bytes + _BLOCK,  # escapes can make JSON six times as long as its text
        ids=frozenset({source.column(source.id_field)}),
        wants=wants,
        remedy=_REMEDY,
    )


def read_records(piece: Slice, request: interface.ReadRequest, options: dict[str, str]) -> Iterator[interface.Decoded]:
    """Yield (position, record) of a slice, without the rows that the table of the file has deleted.

    Damage is a row whose end cannot be found (``damaged_row``), or bytes that do not decode, which end the slice: rows
    before them are kept, and one row ``damaged_file`` has the error, its place, and the number of unread bytes.
    """
    deleted = _deleted_rows(piece, options)
    gone = next(deleted, None)
    with open_pinned(piece.file, options) as watched:
        if piece.file.size:
            for rows, (position, record) in enumerate(_undamaged(piece, request, watched)):
                if isinstance(record, BadRow) and record.is_damage:
                    if request.source.on_damage == "fail":
                        lost = f", and {record.unread} of {piece.size} bytes cannot be read" if record.unread else ""
                        raise SourceError(
                            f"{piece.file.location} is damaged: {record.detail}; {rows} rows before it were read{lost}"
                            f"; {request.remedy}"
                        )
                elif position == gone:
                    gone = next(deleted, None)
                    continue
                yield position, record


def _deleted_rows(piece: Slice, options: dict[str, str]) -> Iterator[int]:
    """Yield the numbers of the rows that the table of a file has deleted, from the first row of a slice on."""
    if piece.file.deleted is not None:
        try:
            rows = deletion_vector.deleted_rows(Store(piece.file.uri, options), piece.file.deleted)
        except ArtifactError as error:
            raise SourceError(f"the deleted rows of {piece.file.location} cannot be read: {error}") from error
        yield from rows[np.searchsorted(rows, piece.first_row) :].data


def _undamaged(piece: Slice, request: interface.ReadRequest, watched: WatchedFile) -> Iterator[interface.Decoded]:
    """Yield (position, record) of a slice; damage that ends it is a row ``damaged_file``."""
    decoder = registry.file_format(piece.file.format)
    position, rows = piece.start if decoder.footer is None else piece.first_row, 0
    with io.BufferedReader(watched, _BLOCK) as handle:
        plain: Readable | Decompressor = handle
        try:
            with decompressed(handle, piece.file.format) as plain:
                for at, record in decoder.records(plain, piece, request):
                    if isinstance(record, BadRow) and record.unread and isinstance(plain, Decompressor):
                        record = replace(record, unread=plain.packed(record.unread))
                    yield at, record
                    position, rows = at + 1, rows + 1
        except _DAMAGE as error:
            if isinstance(error, MemoryError):  # Arrow's MemoryError is an ArrowException too
                raise
            if watched.failure is not None:
                raise  # no damage: ``open_pinned`` reports the failure
            problem = " ".join(str(error).split()) or type(error).__name__
            unread = _unread_bytes(piece, error, rows, handle, plain)
            place = f"byte {piece.size - unread}" if decoder.footer is None else f"row {position}"
            detail = f"{shorten(problem)}, at {place}, after {rows} rows"
            yield position, BadRow(DAMAGED_FILE, detail, None, "", unread=unread)


def _unread_bytes(piece: Slice, error: Exception, rows: int, handle: BinaryIO, plain: Readable | Decompressor) -> int:
    """Return the bytes of a slice that were not decoded when an error ended it; rather too many than too few."""
    if isinstance(plain, Decompressor):
        return piece.size - plain.decoded
    if isinstance(error, DamagedFileError) and error.decoded is not None:
        return piece.size - error.decoded
    footer = registry.file_format(piece.file.format).footer
    if footer is None:
        return piece.size
    try:
        groups = footer(handle).groups[piece.start : None if piece.stop == WHOLE else piece.stop]
    except (pa.ArrowException, OSError):
        return piece.size
    expected = sum(count for count, _ in groups)
    return piece.size - piece.size * rows // expected if expected else piece.size


def require_source_on_nodes(files: Iterable[SourceFile], *, field: str = "source.paths") -> None:
    """Refuse local files that some node lacks, or whose content differs there: a sample is looked up on every node.

    A shared file system passes, and so does a copy of the source under the same path on every node.
    """
    if not has_several_nodes():
        return
    local = [file for file in files if not is_remote(file.uri)]
    by_folder = {file.uri: file for file in reversed(local)}
    sample = list(
        {file.location: file for file in spread([*by_folder.values()], _FOLDERS) + spread(local, _FILES)}.values()
    )
    if not sample:
        return
    found = on_every_node(_problems, sample)
    for file in sample:
        for problem in ("is not on", "has another content on"):
            if nodes := [name for name, problems in found if problems.get(file.location) == problem]:
                raise ConfigError(
                    field,
                    f"{file.location} {problem} {summarize_nodes(nodes, len(found))}",
                    "put the files into an object store, or into a folder that every node sees",
                )


def _problems(files: Sequence[SourceFile]) -> dict[str, str]:
    """Return what is wrong with files on this node, by location."""
    found = {}
    for file in files:
        try:
            check_pinned(file, {})
        except SourceError:
            found[file.location] = "has another content on" if Path(file.location).exists() else "is not on"
    return found
