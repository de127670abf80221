"""Find the rows that differ between two versions of a sparse table.

Parts are immutable, so a part that both versions name is not read. Rows that a compaction or an increment moved to
another part do not count as changed.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsr_prod.storage import Store
from lsr_prod.tables import Table, TableFile, read_part
from lsr_prod.tables.file_table import to_files
from lsr_prod.tables.schema import large_strings

__all__ = ["PartChange", "RowChange", "changed_parts", "changed_rows", "find_rows", "row_schema"]


@dataclass(frozen=True, slots=True)
class PartChange:
    """Parts of one bucket that only one of two versions names.

    Attributes:
        bucket: number of the bucket.
        removed: parts that only the old version names.
        added: parts that only the new version names.
    """

    bucket: int
    removed: tuple[TableFile, ...]
    added: tuple[TableFile, ...]

    @property
    def size(self) -> int:
        """Total bytes of the parts."""
        return sum(file.size for file in (*self.removed, *self.added))


@dataclass(frozen=True, slots=True)
class RowChange:
    """Documents of one bucket that changed.

    Attributes:
        bucket: number of the bucket.
        upserts: large_string, sorted: ids of documents that are new or whose terms, impacts or stored fields differ.
        deletes: large_string, sorted: ids of documents that only the old version has.
        replaced: number of upserts that the old version also has.
    """

    bucket: int
    upserts: pa.Array
    deletes: pa.Array
    replaced: int


def row_schema(table: Table, stored_fields: Sequence[str]) -> pa.Schema:
    """Return the columns that an index is built from, without the columns about the source of a row."""
    return pa.schema([table.schema.field(name) for name in ("doc_id", "terms", "impacts", *stored_fields)])


def changed_parts(old: Table, new: Table) -> list[PartChange]:
    """Return the parts that differ, by bucket; buckets without differences are omitted."""
    before, after = old.file_table(), new.file_table()
    buckets: dict[int, tuple[list[TableFile], list[TableFile]]] = defaultdict(lambda: ([], []))
    for place, mine, others in ((0, before, after), (1, after, before)):
        only = mine.filter(pc.invert(pc.is_in(mine["path"], value_set=others["path"])))
        for file in to_files(only):
            buckets[int(file.partition["bucket"] or 0)][place].append(file)
    return [PartChange(bucket, tuple(gone), tuple(came)) for bucket, (gone, came) in sorted(buckets.items())]


def changed_rows(store: Store, change: PartChange, schema: pa.Schema) -> RowChange:
    """Compare the rows of one bucket; the changed parts of both versions are in memory at once.

    Rows are compared in pairs of Arrow chunks, which are never joined: a bucket may have more text than the offsets of
    a string array can address (2 GiB).

    Args:
        store: the table's folder.
        change: the parts that differ.
        schema: columns to compare, from ``row_schema``.

    Raises:
        ArtifactError: a part is missing or damaged.
    """
    old, new = (_read(store, files, schema) for files in (change.removed, change.added))
    old_ids, new_ids = (table["doc_id"].cast(pa.large_string()) for table in (old, new))
    places = pc.index_in(new_ids, value_set=old_ids.combine_chunks())
    known = places.is_valid()
    changed = new_ids.filter(pa.array(_rows_that_differ(old, new, pc.fill_null(places, -1).to_numpy())))
    came = new_ids.filter(pc.invert(known))
    gone = old_ids.filter(pc.invert(pc.is_in(old_ids, value_set=new_ids.combine_chunks())))
    upserts = pa.chunked_array([*came.chunks, *changed.chunks], pa.large_string())
    return RowChange(change.bucket, _sorted(upserts), _sorted(gone), len(changed))


def find_rows(store: Store, paths: Sequence[str], schema: pa.Schema, ids: pa.Array) -> pa.Table:
    """Return the rows of chosen documents of one bucket, sorted by id.

    Of parts without any of the documents only the ids are read.

    Args:
        store: the table's folder.
        paths: parts of the bucket.
        schema: columns to read, ``doc_id`` first.
        ids: large_string, ids of the documents; unknown ids are ignored.

    Returns:
        Columns of ``schema``, with ``large_string`` in place of ``string``.

    Raises:
        ArtifactError: a part is missing or damaged.
    """
    wide = large_strings(schema)
    found = [wide.empty_table()]
    id_schema = pa.schema([wide.field("doc_id")])
    for path in paths:
        mask = pc.is_in(read_part(store, path, id_schema)["doc_id"], value_set=ids)
        if pc.any(mask).as_py():
            found.append(read_part(store, path, wide).filter(mask))
    return pa.concat_tables(found).sort_by("doc_id")


def _read(store: Store, files: Sequence[TableFile], schema: pa.Schema) -> pa.Table:
    return pa.concat_tables([schema.empty_table(), *(read_part(store, file.path, schema) for file in files)])


def _sorted(ids: pa.ChunkedArray) -> pa.Array:
    return ids.combine_chunks().sort()


def _rows_that_differ(old: pa.Table, new: pa.Table, places: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
    """Return which rows of ``new`` differ from their row of ``old``, bool [n].

    Args:
        old: rows of the old version.
        new: rows of the new version.
        places: int32 [n], the row of ``old`` with the same id; -1: none, and the row does not count as different.
    """
    differs = np.zeros(new.num_rows, np.bool_)
    chunks = old.to_batches()
    ends = np.cumsum([len(chunk) for chunk in chunks])
    end = 0
    for batch in new.to_batches():
        start, end = end, end + len(batch)
        wanted = places[start:end]
        owners = np.where(wanted < 0, -1, np.searchsorted(ends, wanted, side="right"))
        for owner in np.unique(owners[owners >= 0]):
            rows = np.flatnonzero(owners == owner)
            inside = wanted[rows] - (ends[owner] - len(chunks[owner]))
            differs[start + rows] = _differs(chunks[owner].take(pa.array(inside)), batch.take(pa.array(rows)))
    return differs


def _differs(old: pa.RecordBatch, new: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Return which rows differ, bool [n]; both batches have the same ids in the same order."""
    differs = np.zeros(new.num_rows, np.bool_)
    for field in new.schema:
        one, other = (batch[field.name] for batch in (old, new))
        if pa.types.is_list(field.type):
            differs |= _lists_differ(one, other)
        elif field.name != "doc_id":
            same = pc.equal(one, other).fill_null(False)
            both_null = pc.and_(one.is_null(), other.is_null())
            differs |= ~pc.or_(same, both_null).to_numpy(zero_copy_only=False)
    return differs


def _lists_differ(one: pa.Array, other: pa.Array) -> npt.NDArray[np.bool_]:
    lengths, others = (pc.list_value_length(column).to_numpy(zero_copy_only=False) for column in (one, other))
    differs: npt.NDArray[np.bool_] = lengths != others
    equal = pa.array(~differs)
    flat, flat_other = (column.filter(equal).flatten().to_numpy() for column in (one, other))
    rows = np.repeat(np.flatnonzero(~differs), lengths[~differs])
    differs[rows[flat != flat_other]] = True
    return differs
