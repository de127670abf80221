"""Findings of an audit: sums over its partitions."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lsr_prod.cluster.workers import run_calls
from lsr_prod.config import SourceSettings
from lsr_prod.corpus import read, source_rows
from lsr_prod.corpus.formats import interface, registry
from lsr_prod.corpus.pinned_file import COMPRESSIONS, Slice
from lsr_prod.encoding.tables import TableFile, live_rows
from lsr_prod.indexing.tombstones import read_ids
from lsr_prod.operations.audit.compare import BAD, BASE, EXAMPLES, INDEX, SOURCE, TABLE, Found
from lsr_prod.operations.audit.scope import IndexScope, Scope
from lsr_prod.storage import Store
from lsr_prod.storage.formats.index_format import ShardManifest

_BATCH_ROWS = 16_384
Place = tuple[int, int, int]
"""Kind of a record, number of its file, position."""


@dataclass(frozen=True, slots=True)
class Example:
    """One document of a finding."""

    doc_id: str  # its id
    place: str  # where its row is


def look_up(
    found: Mapping[str, Sequence[Place]],
    scope: Scope,
    pieces: Sequence[Slice],
    parts: Mapping[int, Sequence[TableFile]],
    *,
    on_ray: bool,
) -> dict[str, list[Example]]:
    """Return the examples of every finding, with their ids: one task per example."""
    names = [name for name, places in found.items() for _ in places]
    tasks = [_task(place, scope, pieces, parts) for places in found.values() for place in places]
    results = dict(run_calls(_call, tasks, task="looking up an id", on_ray=on_ray))
    shown: dict[str, list[Example]] = {}
    for number, name in enumerate(names):
        shown.setdefault(name, []).append(results[number])
    return shown


def _task(
    place: Place, scope: Scope, pieces: Sequence[Slice], parts: Mapping[int, Sequence[TableFile]]
) -> tuple[Callable[..., Example], tuple[Any, ...]]:
    kind, number, position = place
    if kind in (SOURCE, BAD):
        piece = _piece_of(pieces, number, position, scope.source)
        return _of_source, (piece, position, scope.source, scope.table.store.options)
    if kind in (TABLE, BASE):
        snapshot = scope.table if kind == TABLE else _index(scope).base
        assert snapshot is not None
        return _of_part, (snapshot.store, parts[kind][number], position)
    assert kind == INDEX
    index = _index(scope)
    return _of_shard, (index.store, index.version.shards[number], position)


def _index(scope: Scope) -> IndexScope:
    assert scope.index is not None
    return scope.index


def _piece_of(pieces: Sequence[Slice], file: int, position: int, source: SourceSettings) -> Slice:
    """Return the slice that has a row; of a text format that may be cut, one of its first byte only."""
    mine = [piece for piece in pieces if piece.ordinal == file]
    kind = registry.file_format(mine[0].file.format)
    if kind.footer is not None:
        return max((piece for piece in mine if piece.first_row <= position), key=lambda piece: piece.first_row)
    if mine[0].file.format.endswith(COMPRESSIONS) or not kind.splittable(source):
        return mine[0]
    return replace(mine[0], start=position, stop=position + 1, size=1)


def _call(function: Callable[..., Example], arguments: tuple[Any, ...]) -> Example:
    return function(*arguments)


def _of_source(piece: Slice, position: int, source: SourceSettings, options: dict[str, str]) -> Example:
    column = source.column(source.id_field)
    for at, record in read.read_records(piece, read.read_request(source), options):
        if at == position:
            value = record.values.get(column) if isinstance(record, interface.Record) else None
            return Example(source_rows.as_string(column, value)[0] or "", f"{piece.file.location} at {position}")
    raise AssertionError(f"{piece.file.location} has no row at {position}")  # it was read a moment ago


def _of_part(store: Store, file: TableFile, position: int) -> Example:
    for batch in live_rows.live_batches(store, file, ["doc_id"], _BATCH_ROWS):  # without the deleted rows
        if position < batch.num_rows:
            return Example(batch["doc_id"][position].as_py(), f"{store.uri}/{file.path}")
        position -= batch.num_rows
    raise AssertionError(f"{file.path} has no row at {position}")


def _of_shard(index: Store, shard: ShardManifest, ordinal: int) -> Example:
    return Example(read_ids(index, shard)[ordinal].as_py(), f"shard {shard.sha} of {index.uri}")


@dataclass(frozen=True, slots=True)
class Audit:
    """Findings of an audit. Counts are of ids unless stated otherwise."""

    documents: int  # ids of valid rows of the source
    missing: int  # documents that the table does not have, and that the quarantine does not explain
    removed: int  # ids of the table that the source does not have
    outdated: int  # ids whose text or stored fields differ in the table from the row that has to be the document
    doubled: int  # ids with more than one row in the table
    unread: int  # files of the source that cannot be read to their end
    unread_bytes: int  # bytes that were not read, at most
    quarantined: int  # ids of the source without a valid row, or on which the model failed
    bad_rows: int  # rows of the source without a readable id
    repeated: int  # ids with more than one valid row in the source
    taken_down: int  # documents of the table that were taken down and that the index hides
    index_missing: int | None  # ids of the table that the index does not have; None: no index is compared
    index_stale: int | None  # ids of the index that the table does not have
    index_doubled: int | None  # ids with more than one document in the index
    exposed: int | None  # ids that were taken down, and that the index does not hide
    files: int  # files of the source
    # files of the source of which the table has no row: they came or changed after the last encode job, or have no
    # document
    new_files: int
    missing_in_new_files: int  # missing documents of these files
    # share of the weights with the largest impact, to which heavier ones are clipped; None: unknown
    clipped_share: float | None
    table_version: int  # version of the table that was compared
    index_table_version: int | None  # version of the table that the index was built from; None: no index is compared
    # version of the table that the index was compared with; another one than ``index_table_version`` if files of that
    # one were deleted
    index_compared: int | None
    share: int  # one of how many ids was compared
    passes: int  # how often the source was read
    record_bytes: int  # bytes of all records
    seconds: float  # duration
    examples: Mapping[str, list[Example]]  # kind of finding -> some documents

    @property
    def stale(self) -> int:
        """Ids of the table that are ``removed`` or ``outdated``."""
        return self.removed + self.outdated

    @property
    def lost(self) -> int:
        """Ids, and files that cannot be read, with a finding that must not be."""
        of_index = (self.index_missing, self.index_stale, self.index_doubled, self.exposed)
        return self.missing + self.stale + self.doubled + self.unread + sum(count or 0 for count in of_index)


@dataclass(slots=True)
class Sums:
    """Sums over partitions."""

    counts: Counter[str] = field(default_factory=Counter)  # kind of finding -> ids
    places: dict[str, list[Place]] = field(default_factory=dict)  # kind of finding -> places of some examples
    # number of a source file -> missing documents that are in it
    missing_files: Counter[int] = field(default_factory=Counter)
    source_files: set[int] = field(default_factory=set)  # keys of the source files that the rows of the table name
    record_bytes: int = 0  # bytes of all records

    def add(self, found: Found) -> None:
        """Add a partition."""
        self.counts.update(found.counts)
        self.missing_files.update(found.missing_files)
        self.source_files.update(found.source_files.tolist())
        self.record_bytes += found.record_bytes
        for name, places in found.examples.items():
            mine = self.places.setdefault(name, [])
            mine += places[: EXAMPLES - len(mine)]
