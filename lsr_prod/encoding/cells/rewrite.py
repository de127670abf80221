"""Committed rows of a bucket: active ids, superseded rows, vectors to keep; and the parts that replace theirs.

A part is immutable. A part with rows of a removed source file is replaced: each cell of its bucket writes its other
rows together with the new rows of the cell, so that an increment does not increase the number of parts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lsr_prod.encoding.cells.duplicates import SourceOrder
from lsr_prod.errors import CommitError
from lsr_prod.formats.table import TableProperties, cell_of
from lsr_prod.storage import Store
from lsr_prod.tables import Part, read_part, write_part
from lsr_prod.tables.rows import content_columns, part_schema, replace_source

__all__ = ["Known", "Rewritten", "find_known", "rewrite", "unchanged_rows"]

_MERGED_BYTES = 256_000_000  # of replaced rows in memory that are written as one part

_KNOWN_SCHEMA = pa.schema(
    [*((name, pa.large_string()) for name in ("doc_id", "content_hash", "path")), ("source_file", pa.int64())]
)


@dataclass(frozen=True, slots=True)
class Known:
    """Committed rows of some ids.

    Attributes:
        active: large_string, ids whose source file is still part of the corpus.
        superseded: doc_id, content_hash, part and source file of rows that new rows of their ids replace: their source
            file was removed, or they are displaced.
        displaced: large_string, ids of committed documents whose source file is still part of the corpus, but whose new
            row takes their place.
        touched: parts with a row of a removed source file or a displaced row, sorted.
    """

    active: pa.Array
    superseded: pa.Table
    displaced: pa.Array
    touched: tuple[str, ...]

    def of(self, doc_ids: pa.ChunkedArray) -> "Known":
        """Return what is known of some of the ids; the parts to replace and the active ids are those of all of them."""
        wanted = doc_ids.combine_chunks()
        superseded = self.superseded.filter(pc.is_in(self.superseded["doc_id"], value_set=wanted))
        displaced = self.displaced.filter(pc.is_in(self.displaced, value_set=wanted))
        return replace(self, superseded=superseded, displaced=displaced)

    def has_vector(self, doc_ids: pa.ChunkedArray, hashes: pa.Array) -> pa.Array:
        """Return whether the table has the vector of the same text under the same id; bool [n]."""
        if not self.superseded.num_rows:
            return pa.array([False] * len(doc_ids), pa.bool_())
        places = pc.index_in(doc_ids, value_set=self.superseded["doc_id"].combine_chunks())
        before = self.superseded["content_hash"].take(places)
        return pc.fill_null(pc.equal(before, hashes), False)


@dataclass(frozen=True, slots=True)
class Rewritten:
    """New parts of a cell.

    Attributes:
        parts: the new parts.
        removes: paths of the parts that they replace.
        kept: rows copied unchanged from a replaced part.
        superseded: rows of a replaced part whose document has a new version.
        deleted: ids of replaced parts that no new part has.
    """

    parts: tuple[Part, ...]
    removes: tuple[str, ...]
    kept: int
    superseded: int
    deleted: pa.Array


def find_known(
    table: Store, paths: Sequence[str], rows: pa.Table, removed: frozenset[int], order: SourceOrder
) -> Known:
    """Look up ids in the parts of their bucket; only the found ones are kept in memory.

    Only the columns doc_id and source_file are read, and content_hash of the parts with a row that is replaced.

    Args:
        table: the sparse table's folder.
        paths: the bucket's parts.
        rows: ``rows.row_schema``, one new row per id.
        removed: keys of the removed source files.
        order: decides between a new and a committed row.

    Raises:
        CommitError: a part is missing or damaged.
    """
    wanted, files = (rows[name].combine_chunks() for name in ("doc_id", "file"))
    gone = pa.array(sorted(removed), pa.int64())
    active, superseded, displaced, touched = [], [_KNOWN_SCHEMA.empty_table()], [], []
    for path in paths:
        start, hits = 0, []  # ids and source files of replaced rows, and their places in the part
        for batch in _batches(table, path, ["doc_id", "source_file"]):
            keys, ids = batch["source_file"], batch["doc_id"].cast(pa.large_string())
            leaves = pc.is_in(keys, value_set=gone)
            places = pc.index_in(ids, value_set=wanted)
            found = places.is_valid()
            loses = _loses(order, files, places, keys, leaves)
            if pc.any(pc.or_(leaves, loses)).as_py():
                touched.append(path)
            active.append(ids.filter(pc.and_not(pc.and_not(found, leaves), loses)))
            displaced.append(ids.filter(loses))
            replaced = pc.and_(found, pc.or_(leaves, loses))
            if pc.any(replaced).as_py():
                at = pa.array(start + np.flatnonzero(replaced.to_numpy(zero_copy_only=False)))
                hits.append(pa.table({"doc_id": ids.filter(replaced), "source_file": keys.filter(replaced), "at": at}))
            start += batch.num_rows
        if hits:
            superseded.append(_with_hashes(table, path, pa.concat_tables(hits)))
    return Known(
        _joined(active),
        pa.concat_tables(superseded),
        _joined(displaced),
        tuple(sorted(set(touched))),
    )


def _with_hashes(table: Store, path: str, rows: pa.Table) -> pa.Table:
    """Return rows of a part in ``_KNOWN_SCHEMA``; ``at`` is the place of each in the part."""
    hashes = pa.Table.from_batches(_batches(table, path, ["content_hash"]))["content_hash"]
    columns = {
        "doc_id": rows["doc_id"],
        "content_hash": hashes.cast(pa.large_string()).take(rows["at"]),
        "path": pa.array([path] * rows.num_rows, pa.large_string()),
        "source_file": rows["source_file"],
    }
    return pa.table(columns, schema=_KNOWN_SCHEMA)


def _batches(table: Store, path: str, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a part. A part that is not committed yet may be damaged, or deleted as garbage."""
    try:
        with table.open_reader(path) as file:
            yield from pq.ParquetFile(file).iter_batches(batch_size=65536, columns=columns)
    except (FileNotFoundError, pa.ArrowInvalid) as error:
        raise CommitError(
            f"{table.uri}/{path} was deleted or is damaged ({type(error).__name__}); run the job again"
        ) from error


def _loses(order: SourceOrder, files: pa.Array, places: pa.Array, keys: pa.Array, leaves: pa.Array) -> pa.Array:
    """Return which committed rows new rows displace, bool [rows of the batch]."""
    meets = pc.and_not(places.is_valid(), leaves).to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(meets)
    displaced = order.displaces(files.take(places.take(pa.array(rows))), keys.take(pa.array(rows)))
    meets[rows] = displaced.to_numpy(zero_copy_only=False)
    return pa.array(meets)


def _joined(ids: list[pa.Array]) -> pa.Array:
    return pa.concat_arrays(ids) if ids else pa.array([], pa.large_string())


def unchanged_rows(table: Store, known: Known, rows: pa.Table, properties: TableProperties) -> pa.Table:
    """Return rows of the sparse table for documents with the same text: new source and stored fields, the old vector.

    Args:
        table: the sparse table's folder.
        known: committed rows of these ids.
        rows: ``rows.row_schema``, each with a vector in ``known``.
        properties: of the table.
    """
    schema = part_schema(properties)
    wanted = rows["doc_id"].combine_chunks()
    paths = pc.unique(
        known.superseded.filter(pc.is_in(known.superseded["doc_id"], value_set=wanted))["path"]
    ).to_pylist()
    schema = pa.schema([schema.field(name) for name in content_columns(properties)])
    found = [schema.empty_table()]
    for path in paths:
        part = read_part(table, path, schema)
        found.append(part.filter(pc.is_in(part["doc_id"], value_set=wanted)))
    vectors, rows = pa.concat_tables(found).sort_by("doc_id"), rows.sort_by("doc_id")
    stored = {name: rows[f"stored.{name}"] for name in properties.stored_fields}
    return replace_source(properties, vectors, rows["source_key"], stored)


def rewrite(
    table: Store,
    cell: int,
    cells: int,
    buckets: int,
    known: Known,
    touched: Sequence[str],
    fresh: pa.Table,
    removed: frozenset[int],
) -> Rewritten:
    """Write the parts of a cell: its new rows, and its other rows of the parts that the wave replaces.

    Every cell of a bucket replaces the same parts and writes its own rows of them. Replaced parts are merged up to a
    size, so that an increment does not increase the number of parts; as many rows are in memory at a time.

    Args:
        table: the sparse table's folder.
        cell: number of the cell.
        cells: number of cells that ids are hashed to.
        buckets: number of buckets of the table.
        known: committed rows of the ids of the cell.
        touched: parts that the cells of the bucket replace.
        fresh: new rows (``part_schema``).
        removed: keys of the removed source files.
    """
    folder, gone = f"bucket={cell % buckets}", pa.array(sorted(removed), pa.int64())
    fresh_ids = fresh["doc_id"].combine_chunks()
    parts, held, kept, superseded, deleted = [], [fresh.slice(0, 0)], 0, 0, [fresh_ids.slice(0, 0)]
    for path in touched:
        before = read_part(table, path, fresh.schema)
        if cells > buckets:
            before = before.filter(_is_of(cell, cells, before["doc_id"]))
        leaves = pc.or_(
            pc.is_in(before["source_file"], value_set=gone), pc.is_in(before["doc_id"], value_set=known.displaced)
        )
        stays, leaving = before.filter(pc.invert(leaves)), before["doc_id"].filter(leaves)
        replaced = pc.is_in(leaving, value_set=fresh_ids)
        deleted += leaving.filter(pc.invert(replaced)).chunks
        superseded += pc.sum(replaced).as_py() or 0
        kept += stays.num_rows
        if sum(rows.nbytes for rows in held) + stays.nbytes > _MERGED_BYTES:
            parts += _write(table, folder, held)
            held = []
        held.append(stays)
    parts += _write(table, folder, [*held, fresh])
    return Rewritten(tuple(parts), tuple(touched), kept, superseded, pa.concat_arrays(deleted))


def _is_of(cell: int, cells: int, doc_ids: pa.ChunkedArray) -> pa.Array:
    return pa.array([cell_of(doc_id, cells) == cell for doc_id in doc_ids.to_pylist()], pa.bool_())


def _write(table: Store, folder: str, rows: Sequence[pa.Table]) -> list[Part]:
    merged = pa.concat_tables(rows)
    return [write_part(table, folder, merged.sort_by("doc_id"))] if merged.num_rows else []
