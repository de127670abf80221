"""Find the rows that differ between two versions of a sparse table.

Parts are immutable. Of a part that both versions name, only the ids are read, and only if its deleted rows differ.

A row that a compaction or an increment moved to another part unchanged does not count as changed, for example a row of
a file that was delivered again. To detect this, the old part of the row has to be read. If both versions name that
part, it is read only if at least an eighth of its rows were moved. Below that, its moved rows count as changed: to
index them again costs less than to read the part.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsr_prod.encoding.tables import Table, TableFile, live_rows, part, read_all_rows, read_part
from lsr_prod.storage import Store
from lsr_prod.storage.deletion_vector import deleted_rows, file_of

_MOVED = 1 / 8  # share of the rows of a part
_NO_ROWS = np.empty(0, np.uint32)


@dataclass(frozen=True, slots=True)
class PartChange:
    """Parts of one bucket that only one of two versions names."""

    bucket: int  # number of the bucket
    removed: tuple[TableFile, ...]  # parts that only the old version names
    added: tuple[TableFile, ...]  # parts that only the new version names
    # parts that both versions name with other deleted rows: in the old version, in the new one
    cut: tuple[tuple[TableFile, TableFile], ...] = ()

    @property
    def size(self) -> int:
        """Total bytes of the parts that only one version names."""
        return sum(file.size for file in (*self.removed, *self.added))

    @property
    def old_files(self) -> set[str]:
        """Paths of the parts and deletion vectors that the new version may not name."""
        vectors = (file.deleted for file in (*self.removed, *(old for old, _ in self.cut)) if file.deleted)
        return {*(file.path for file in self.removed), *(path for vector in vectors if (path := file_of(vector)))}


@dataclass(frozen=True, slots=True)
class RowChange:
    """Documents of one bucket that changed."""

    bucket: int  # number of the bucket
    # large_string, sorted: ids of documents that are new or whose terms, impacts or stored fields differ
    upserts: pa.Array
    deletes: pa.Array  # large_string, sorted: ids of documents that only the old version has
    replaced: int  # number of upserts that the old version also has


def row_schema(table: Table, stored_fields: Sequence[str]) -> pa.Schema:
    """Return the columns that an index is built from, without the columns about the source of a row."""
    return pa.schema([table.schema.field(name) for name in ("doc_id", "terms", "impacts", *stored_fields)])


def changed_parts(old: Table, new: Table) -> list[PartChange]:
    """Return the parts that differ, by bucket; buckets without differences are omitted."""
    before, after = old.file_table(), new.file_table()
    places = pc.index_in(after["path"], value_set=before["path"])
    both = after.filter(places.is_valid())
    same = before.take(places.drop_null())
    differ = np.flatnonzero(_vectors_differ(same["deleted"], both["deleted"]))
    buckets: dict[int, tuple[list[Any], list[Any], list[Any]]] = defaultdict(lambda: ([], [], []))
    for file in live_rows.to_files(before.filter(pc.invert(pc.is_in(before["path"], value_set=both["path"])))):
        buckets[_bucket(file)][0].append(file)
    for file in live_rows.to_files(after.filter(places.is_null())):
        buckets[_bucket(file)][1].append(file)
    for pair in zip(live_rows.to_files(same.take(differ)), live_rows.to_files(both.take(differ)), strict=True):
        buckets[_bucket(pair[0])][2].append(pair)
    return [PartChange(bucket, *map(tuple, lists)) for bucket, lists in sorted(buckets.items())]


def changed_rows(store: Store, change: PartChange, schema: pa.Schema) -> RowChange:
    """Compare the rows of one bucket; the changed parts of both versions are in memory at once.

    Rows are compared in pairs of Arrow chunks, which are never joined: a bucket may have more text than the offsets of
    a string array can address (2 GiB).
    """
    old, new = (_read(store, files, schema) for files in (change.removed, change.added))
    new_ids = new["doc_id"].cast(pa.large_string())
    deleted, restored, moved = _cut_rows(store, change, schema, new_ids)
    old = pa.concat_tables([old, *moved])
    old_ids = old["doc_id"].cast(pa.large_string())
    places = pc.index_in(new_ids, value_set=old_ids.combine_chunks())
    changed = new_ids.filter(pa.array(_rows_that_differ(old, new, pc.fill_null(places, -1).to_numpy())))
    came = new_ids.filter(places.is_null())
    all_old = pa.concat_arrays([*old_ids.chunks, deleted])
    gone = all_old.filter(pc.invert(pc.is_in(all_old, value_set=pa.concat_arrays([*new_ids.chunks, restored]))))
    upserts = pa.concat_arrays([*came.chunks, *changed.chunks, restored])
    replaced = pc.sum(pc.is_in(upserts, value_set=all_old), min_count=0).as_py()
    return RowChange(change.bucket, upserts.sort(), gone.sort(), replaced)


def find_rows(store: Store, files: Sequence[TableFile], schema: pa.Schema, ids: pa.Array) -> pa.Table:
    """Return the rows of chosen documents of one bucket, sorted by id.

    Of parts without any of the documents only the ids are read.

    Returns:
        Columns of ``schema``, with ``large_string`` in place of ``string``.
    """
    wide = part.large_strings(schema)
    found = [wide.empty_table()]
    id_schema = pa.schema([wide.field("doc_id")])
    for file in files:
        mask = pc.is_in(read_part(store, file, id_schema)["doc_id"], value_set=ids)
        if pc.any(mask).as_py():
            found.append(read_part(store, file, wide).filter(mask))
    return pa.concat_tables(found).sort_by("doc_id")


def _read(store: Store, files: Sequence[TableFile], schema: pa.Schema) -> pa.Table:
    return pa.concat_tables([schema.empty_table(), *(read_part(store, file, schema) for file in files)])


def _bucket(file: TableFile) -> int:
    return int(file.partition["bucket"] or 0)


def _vectors_differ(one: pa.ChunkedArray, other: pa.ChunkedArray) -> np.typing.NDArray[np.bool_]:
    """Return which deletion vectors differ, bool [n]; vectors that differ may delete the same rows."""
    differ = np.zeros(len(one), np.bool_)
    for place in np.flatnonzero(pc.or_(one.is_valid(), other.is_valid()).to_numpy()).tolist():
        differ[place] = one[place] != other[place]
    return differ


def _cut_rows(
    store: Store, change: PartChange, schema: pa.Schema, new_ids: pa.ChunkedArray
) -> tuple[pa.Array, pa.Array, list[pa.Table]]:
    """Return the ids of rows in cut parts that only the old version has there, and that only the new one has there.

    The last value has the rows of the old version that moved to one of the new parts, of parts from which many moved.
    """
    ids_only = pa.schema([pa.field("doc_id", pa.large_string())])
    deleted, restored = ([pa.array([], pa.large_string())] for _ in range(2))
    moved = []
    for before, after in change.cut:
        old, new = (deleted_rows(store, file.deleted) if file.deleted else _NO_ROWS for file in (before, after))
        ids = read_all_rows(store, after.path, ids_only)["doc_id"].combine_chunks()
        left = np.setdiff1d(new, old)
        deleted.append(ids.take(pa.array(left)))
        restored.append(ids.take(pa.array(np.setdiff1d(old, new))))
        rows = left[pc.is_in(deleted[-1], value_set=new_ids.combine_chunks()).to_numpy(zero_copy_only=False)]
        if len(rows) >= _MOVED * len(ids):
            moved.append(read_all_rows(store, after.path, schema).take(pa.array(rows)))
    return pa.concat_arrays(deleted), pa.concat_arrays(restored), moved


def _rows_that_differ(old: pa.Table, new: pa.Table, places: np.typing.NDArray[np.int32]) -> np.typing.NDArray[np.bool_]:
    """Return which rows of ``new`` differ from their row of ``old``, bool [n]."""
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


def _differs(old: pa.RecordBatch, new: pa.RecordBatch) -> np.typing.NDArray[np.bool_]:
    """Return which rows differ, bool [n]; both batches have the same ids in the same order."""
    differs = np.zeros(new.num_rows, np.bool_)
    for field in new.schema:
        one, other = (batch[field.name] for batch in (old, new))
        if pa.types.is_list(field.type):
            differs |= _lists_differ(one, other)
        elif field.name != "doc_id":
            same = pc.equal(one, other).fill_null(False)
            differs |= ~pc.or_(same, pc.and_(one.is_null(), other.is_null())).to_numpy(zero_copy_only=False)
    return differs


def _lists_differ(one: pa.Array, other: pa.Array) -> np.typing.NDArray[np.bool_]:
    lengths, others = (pc.fill_null(pc.list_value_length(column), -1).to_numpy() for column in (one, other))
    differs: np.typing.NDArray[np.bool_] = lengths != others
    equal = pa.array(~differs)
    flat, flat_other = (column.filter(equal).flatten().to_numpy(zero_copy_only=False) for column in (one, other))
    rows = np.repeat(np.flatnonzero(~differs), np.maximum(lengths[~differs], 0))
    differs[rows[flat != flat_other]] = True
    return differs
