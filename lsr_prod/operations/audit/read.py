"""Tasks of an audit that read the source, the table, the quarantine and the index, and return records by partition.

They read files, parts and shards only: no plan, no marker and no count of the commit protocol.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsr_prod.config import SourceSettings
from lsr_prod.corpus import pinned_file, read
from lsr_prod.corpus.formats.interface import ReadRequest, Record
from lsr_prod.corpus.source_rows import DAMAGED_FILE, DAMAGED_ROW, BadRow, Document, as_string, validate
from lsr_prod.encoding.tables import TableFile, live_rows, quarantine_rows
from lsr_prod.indexing.tombstones import load_takedowns, load_tombstones, read_ids
from lsr_prod.operations.audit.compare import (
    BAD,
    INDEX,
    QUARANTINE,
    SOURCE,
    TAKEDOWN,
    IdRange,
    Records,
    stored_hash,
    to_records,
)
from lsr_prod.storage import Store
from lsr_prod.storage.formats.index_format import IndexVersion, ShardManifest, Tombstones
from lsr_prod.storage.formats.table_format import content_hash, content_keys

_BATCH_ROWS = 16_384
_BLOCK = 65_536  # records that are held as Python objects


@dataclass(frozen=True, slots=True)
class Unread:
    """A row, or the rest of a slice, that cannot be read."""

    file: int  # number of the source file
    position: int  # byte of a text format, row number of other formats, from which on nothing is read
    size: int  # bytes that were not read, at most; 0: one row that does not parse
    detail: str  # the error


@dataclass(slots=True)
class SourceNote:
    """Bad rows and unread bytes that a task found in its slices."""

    bad: Counter[str] = field(default_factory=Counter)  # bad rows without a readable id, by reason
    unread: list[Unread] = field(default_factory=list)  # what could not be read


@dataclass(frozen=True, slots=True)
class Clipping:
    """Weights of some rows of a table."""

    weights: int = 0  # number of weights
    top: int = 0  # weights with the largest impact

    def __add__(self, other: "Clipping") -> "Clipping":
        return Clipping(self.weights + other.weights, self.top + other.top)


def read_source(
    pieces: Sequence[pinned_file.Slice], source: SourceSettings, options: dict[str, str], ids: IdRange, stored: bool
) -> tuple[list[Records], SourceNote]:
    """Read the documents of slices."""
    note = SourceNote()
    return ids.split([*_blocks(_source_rows(pieces, source, options, ids, stored, note))]), note


def _source_rows(
    pieces: Sequence[pinned_file.Slice],
    source: SourceSettings,
    options: dict[str, str],
    ids: IdRange,
    stored: bool,
    note: SourceNote,
) -> Iterator[tuple[Any, ...]]:
    request = read.read_request(source, wants=ids.wants)
    for piece in pieces:
        key = piece.file.key
        for position, record in read.read_records(piece, request, options):
            if record is None or _is_unwanted(record, request, ids):
                continue
            row = record if isinstance(record, BadRow) else validate(record.values, source, line=record.line)
            if isinstance(row, BadRow) and row.is_damage:
                note.unread.append(Unread(piece.ordinal, position, row.unread, row.detail))
            elif isinstance(row, BadRow) and not row.doc_id:
                note.bad[row.reason] += 1
            elif (hashes := ids.hashes(row.doc_id or "")) is not None:
                yield *hashes, *_values(row, piece.ordinal, position, stored), key


def _values(row: Document | BadRow, file: int, position: int, stored: bool) -> tuple[int, int, int, int, int]:
    """Return kind, file, position, content key and hash of the stored fields of a row."""
    if isinstance(row, BadRow):
        return BAD, file, position, 0, 0
    (content,) = content_keys([content_hash(row.text)]).tolist()
    return SOURCE, file, position, content, stored_hash(row.stored) if stored else 0


def _is_unwanted(record: Record | BadRow, request: ReadRequest, ids: IdRange) -> bool:
    """Return whether a record of a text format need not be validated, because its id is not compared."""
    if isinstance(record, BadRow):
        return False
    column = request.source.column(request.source.id_field)
    doc_id, _ = as_string(column, record.values.get(column))
    return bool(doc_id) and not ids.wants(doc_id or "")


def read_table(
    store: Store,
    files: Sequence[tuple[int, TableFile]],
    kind: int,
    stored_fields: Sequence[str],
    top: int | None,
    ids: IdRange,
) -> tuple[list[Records], Clipping]:
    """Read the live rows of parts."""
    found: list[Clipping] = [Clipping()]

    def rows() -> Iterator[tuple[Any, ...]]:
        columns = ["doc_id", "content_key", "source_file", *stored_fields, *(["impacts"] if top is not None else [])]
        for number, file in files:
            position = 0
            for batch in live_rows.live_batches(store, file, columns, _BATCH_ROWS):
                if top is not None:
                    found.append(_clipping(batch["impacts"], top))
                yield from _table_rows(batch, number, position, kind, stored_fields, ids)
                position += batch.num_rows

    return ids.split([*_blocks(rows())]), sum(found, Clipping())


def _table_rows(
    batch: pa.RecordBatch, number: int, first: int, kind: int, stored_fields: Sequence[str], ids: IdRange
) -> Iterator[tuple[Any, ...]]:
    names, keys, sources = (batch[name].to_pylist() for name in ("doc_id", "content_key", "source_file"))
    stored = list(zip(*(batch[name].to_pylist() for name in stored_fields), strict=True)) if stored_fields else None
    for row, doc_id in enumerate(names):
        if (hashes := ids.hashes(doc_id)) is not None:
            others = stored_hash(stored[row]) if stored else 0
            yield *hashes, kind, number, first + row, keys[row], others, sources[row]


def _clipping(impacts: pa.Array, top: int) -> Clipping:
    values = impacts.flatten()
    return Clipping(len(values), pc.sum(pc.equal(values, top), min_count=0).as_py())


def read_quarantine(store: Store, files: Sequence[TableFile], ids: IdRange) -> tuple[list[Records], None]:
    """Read the rows of the quarantine that explain why a document of the source is not in the table.

    A duplicate is no explanation: another row has to be the document.
    """

    def rows() -> Iterator[tuple[Any, ...]]:
        columns = ("reason", "doc_id", "source_file", "position")
        for file in files:
            for batch in live_rows.live_batches(store, file, columns, _BATCH_ROWS):
                for reason, doc_id, key, position in zip(*(batch[name].to_pylist() for name in columns), strict=True):
                    if (
                        doc_id
                        and reason not in (quarantine_rows.DUPLICATE, DAMAGED_FILE, DAMAGED_ROW)
                        and (hashes := ids.hashes(doc_id)) is not None
                    ):
                        yield *hashes, QUARANTINE, -1, position, 0, 0, key

    return ids.split([*_blocks(rows())]), None


def read_index(
    index: Store, shard: ShardManifest, number: int, tombstones: Tombstones | None, ids: IdRange
) -> tuple[list[Records], None]:
    """Read the documents of a shard that are not deleted; all ids of the shard are in memory."""
    found = read_ids(index, shard)
    alive = np.ones(len(found), np.bool_)
    if tombstones is not None:
        alive[load_tombstones(index, shard, tombstones)] = False

    def rows() -> Iterator[tuple[Any, ...]]:
        first = 0
        for chunk in found.chunks:
            for row, doc_id in enumerate(chunk.to_pylist(), start=first):
                if alive[row] and (hashes := ids.hashes(doc_id)) is not None:
                    yield *hashes, INDEX, number, row, 0, 0, 0
            first += len(chunk)

    return ids.split([*_blocks(rows())]), None


def read_takedowns(index: Store, version: IndexVersion, ids: IdRange) -> tuple[list[Records], None]:
    """Read the ids that are taken down."""
    found = (hashes for doc_id in load_takedowns(index, version) if (hashes := ids.hashes(doc_id)) is not None)
    return ids.split([*_blocks((*hashes, TAKEDOWN, -1, -1, 0, 0, 0) for hashes in found)]), None


def _blocks(rows: Iterable[tuple[Any, ...]]) -> Iterator[Records]:
    held: list[tuple[Any, ...]] = []
    for row in rows:
        held.append(row)
        if len(held) >= _BLOCK:
            yield to_records(held)
            held = []
    if held:
        yield to_records(held)
