"""What the table already has of a bucket: ids that stand, rows that leave, vectors that can be kept.

A part is never changed. One that holds a row of a source file that is gone is replaced as a whole by a part with its
other rows and the new versions of those that left, so that an increment costs no more parts than it found.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lsr_prod.formats.table import TableProperties
from lsr_prod.storage import Store
from lsr_prod.tables import Part, write_part
from lsr_prod.tables.rows import content_columns, part_schema, replace_source

__all__ = ["Known", "Rewritten", "find_known", "rewrite", "unchanged_rows"]

_KNOWN_SCHEMA = pa.schema([("doc_id", pa.string()), ("content_hash", pa.string()), ("path", pa.string())])


@dataclass(frozen=True, slots=True)
class Known:
    """What a snapshot has of some ids.

    Attributes:
        standing: those whose source file is still part of the corpus.
        leaving: doc_id, content_hash and part of those whose source file is gone.
        touched: parts that hold a row of a source file that is gone.
    """

    standing: pa.Array
    leaving: pa.Table
    touched: tuple[str, ...]

    def has_vector(self, doc_ids: pa.ChunkedArray, hashes: pa.Array) -> pa.Array:
        """Whether the table has the vector of this very text under this id; bool [n]."""
        if not self.leaving.num_rows:
            return pa.array([False] * len(doc_ids), pa.bool_())
        places = pc.index_in(doc_ids, value_set=self.leaving["doc_id"].combine_chunks())
        before = self.leaving["content_hash"].take(places)
        return pc.fill_null(pc.equal(before, hashes), False)


@dataclass(frozen=True, slots=True)
class Rewritten:
    """New parts of a bucket.

    Attributes:
        parts: the new parts.
        removes: paths of the parts that they replace.
        kept: rows that moved from a replaced part to a new one as they were.
        deleted: ids of replaced parts that are in no new part.
    """

    parts: tuple[Part, ...]
    removes: tuple[str, ...]
    kept: int
    deleted: pa.Array


def find_known(table: Store, paths: Sequence[str], doc_ids: pa.ChunkedArray, removed: frozenset[int]) -> Known:
    """Look ids up in the parts of their bucket; what is held are those found, never the bucket's ids.

    Args:
        table: the sparse table's folder.
        paths: the bucket's parts.
        doc_ids: ids of the new rows.
        removed: keys of the source files that are gone.
    """
    wanted = pa.chunked_array(doc_ids).combine_chunks() if doc_ids.num_chunks != 1 else doc_ids.chunk(0)
    gone = pa.array(sorted(removed), pa.int64())
    standing, leaving, touched = [], [], []
    columns = ["doc_id", "source_file", "content_hash"] if removed else ["doc_id", "source_file"]
    for path in paths:
        with table.open_reader(path) as file:
            for batch in pq.ParquetFile(file).iter_batches(batch_size=65536, columns=columns):
                leaves = pc.is_in(batch["source_file"], value_set=gone)
                found = pc.is_in(batch["doc_id"], value_set=wanted)
                standing.append(batch["doc_id"].filter(pc.and_(found, pc.invert(leaves))))
                if removed and pc.any(leaves).as_py():
                    touched.append(path)
                    rows = batch.filter(pc.and_(found, leaves))
                    places = pa.array([path] * rows.num_rows, pa.string())
                    leaving.append(pa.table([rows["doc_id"], rows["content_hash"], places], schema=_KNOWN_SCHEMA))
    return Known(
        pa.concat_arrays(standing) if standing else pa.array([], pa.string()),
        pa.concat_tables(leaving) if leaving else _KNOWN_SCHEMA.empty_table(),
        tuple(dict.fromkeys(touched)),
    )


def unchanged_rows(table: Store, known: Known, rows: pa.Table, properties: TableProperties) -> pa.Table:
    """Rows of the sparse table for documents whose text is as it was: new source and stored fields, the same vector.

    Args:
        table: the sparse table's folder.
        known: of these ids.
        rows: ``rows.row_schema``, each with a vector in ``known``.
        properties: of the table.
    """
    schema = part_schema(properties)
    wanted = rows["doc_id"].combine_chunks()
    paths = pc.unique(known.leaving.filter(pc.is_in(known.leaving["doc_id"], value_set=wanted))["path"]).to_pylist()
    columns = content_columns(properties)
    found = [pa.schema([schema.field(name) for name in columns]).empty_table()]
    for path in paths:
        with table.open_reader(path) as file:
            part = pq.read_table(file, columns=columns)
        found.append(part.filter(pc.is_in(part["doc_id"], value_set=wanted)).cast(found[0].schema))
    vectors, rows = pa.concat_tables(found).sort_by("doc_id"), rows.sort_by("doc_id")
    stored = {name: rows[f"stored.{name}"] for name in properties.stored_fields}
    return replace_source(properties, vectors, rows["source_key"], stored)


def rewrite(table: Store, bucket: int, known: Known, fresh: pa.Table, removed: frozenset[int]) -> Rewritten:
    """Write the rows of a cell, each beside the rows it lived with; one replaced part is in memory at a time.

    Args:
        table: the sparse table's folder.
        bucket: the cell's bucket.
        known: of the ids of the cell.
        fresh: new rows (``part_schema``).
        removed: keys of the source files that are gone.
    """
    folder = f"bucket={bucket}"
    parts, kept, deleted = [], 0, [pa.array([], pa.string())]
    gone = pa.array(sorted(removed), pa.int64())
    placed = pa.array([False] * fresh.num_rows, pa.bool_())
    for path in known.touched:
        with table.open_reader(path) as file:
            before = pq.read_table(file, schema=fresh.schema)
        stays = before.filter(pc.invert(pc.is_in(before["source_file"], value_set=gone)))
        lived_here = known.leaving.filter(pc.equal(known.leaving["path"], path))["doc_id"].combine_chunks()
        here = pc.is_in(fresh["doc_id"], value_set=lived_here).combine_chunks()
        placed = pc.or_(placed, here)
        after = pa.concat_tables([stays, fresh.filter(here)])
        kept += stays.num_rows
        left = pc.invert(pc.is_in(before["doc_id"], value_set=after["doc_id"].combine_chunks()))
        deleted.append(before["doc_id"].filter(left).combine_chunks())
        if after.num_rows:
            parts.append(write_part(table, folder, after.sort_by("doc_id")))
    inserts = fresh.filter(pc.invert(placed))
    if inserts.num_rows:
        parts.append(write_part(table, folder, inserts))
    return Rewritten(tuple(parts), known.touched, kept, pa.concat_arrays(deleted))
