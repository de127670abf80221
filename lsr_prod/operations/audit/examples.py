"""Ids of examples: an audit compares hashes, and looks up the few ids that it shows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from lsr_prod.cluster.workers import run_calls
from lsr_prod.config import SourceSettings
from lsr_prod.corpus.formats.interface import Record
from lsr_prod.corpus.formats.registry import file_format
from lsr_prod.corpus.read import read_records, read_request
from lsr_prod.corpus.rows import as_string
from lsr_prod.corpus.slices import COMPRESSIONS, Slice
from lsr_prod.formats.index import ShardManifest
from lsr_prod.indexing.tombstones import read_ids
from lsr_prod.operations.audit.records import BAD, BASE, INDEX, SOURCE, TABLE
from lsr_prod.operations.audit.scope import IndexScope, Scope
from lsr_prod.storage import Store
from lsr_prod.tables import TableFile
from lsr_prod.tables.live_rows import live_batches

_BATCH_ROWS = 16_384

Place = tuple[int, int, int]
"""Kind of a record, number of its file, position."""


@dataclass(frozen=True, slots=True)
class Example:
    """One document of a finding.

    Attributes:
        doc_id: its id.
        place: where its row is.
    """

    doc_id: str
    place: str


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
    kind = file_format(mine[0].file.format)
    if kind.footer is not None:
        return max((piece for piece in mine if piece.first_row <= position), key=lambda piece: piece.first_row)
    if mine[0].file.format.endswith(COMPRESSIONS) or not kind.splittable(source):
        return mine[0]
    return replace(mine[0], start=position, stop=position + 1, size=1)


def _call(function: Callable[..., Example], arguments: tuple[Any, ...]) -> Example:
    return function(*arguments)


def _of_source(piece: Slice, position: int, source: SourceSettings, options: dict[str, str]) -> Example:
    column = source.column(source.id_field)
    for at, record in read_records(piece, read_request(source), options):
        if at == position:
            doc_id = as_string(column, record.values.get(column))[0] if isinstance(record, Record) else None
            return Example(doc_id or "", f"{piece.file.location} at {position}")
    raise AssertionError(f"{piece.file.location} has no row at {position}")  # it was read a moment ago


def _of_part(store: Store, file: TableFile, position: int) -> Example:
    batches = live_batches(store, file, ["doc_id"], _BATCH_ROWS)
    batch = next(islice(batches, position // _BATCH_ROWS, None))
    return Example(batch["doc_id"][position % _BATCH_ROWS].as_py(), f"{store.uri}/{file.path}")


def _of_shard(index: Store, shard: ShardManifest, ordinal: int) -> Example:
    return Example(read_ids(index, shard)[ordinal].as_py(), f"shard {shard.sha} of {index.uri}")
