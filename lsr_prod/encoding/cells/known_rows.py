"""Committed rows of a bucket: active ids, rows that the wave deletes, and vectors to keep.

A committed row is never written again. A wave that replaces or removes it adds its number to the deletion vector of its
part. Of all rows the id and the source file are read (7 to 12 bytes a row, if ids share prefixes), of parts with a row
that is replaced the content keys too. Content hashes and vectors are read only of parts in which a text is unchanged.

Rows with one id: which of them becomes the document, by their order in the source (``encode.on_duplicate``).

The order of two rows is that of their files in the current listing, then their position. So an increment chooses the
row that a full encode chooses: a new row may displace a committed one, which then is quarantined as a duplicate.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsr_prod.encoding.plans.successors import file_locations
from lsr_prod.encoding.tables import TableFile, live_rows, quarantine_rows
from lsr_prod.errors import ArtifactError, CommitError, SourceError
from lsr_prod.storage import Store
from lsr_prod.storage.formats.table_format import TableProperties, cell_of, content_hash, content_keys

Rule = Literal["first", "last", "error"]
DETAILS = {
    "first": "an earlier row of the corpus has this id",
    "last": "a later row of the corpus has this id",
    "error": "another row of the corpus has this id",
}
"""Rule -> detail of a row that is quarantined as a duplicate."""
_SUPERSEDED = pa.schema(
    [
        ("doc_id", pa.large_string()),
        ("content_hash", pa.large_string()),
        ("path", pa.large_string()),
        ("row", pa.int64()),
        ("source_file", pa.int64()),
    ]
)
_TO_DELETE = pa.schema(
    [("doc_id", pa.large_string()), ("cell", pa.int64()), ("path", pa.large_string()), ("row", pa.int64())]
)


@dataclass(frozen=True, slots=True)
class SourceOrder:
    """Order of new and committed rows of one id."""

    rule: Rule  # ``encode.on_duplicate``
    # int64, keys of the current source files in their order; None: a first plan, whose committed rows come before
    # all rows of the wave
    files: pa.Array | None

    def displaces(self, new: pa.Array, committed: pa.Array) -> pa.Array:
        """Return whether new rows take the place of committed rows of the same ids, bool [n]."""
        if self.rule == "error":
            return pa.array(np.zeros(len(committed), np.bool_))
        if self.files is None:
            return pa.array(np.full(len(committed), self.rule == "last"))
        numbers, places = new.to_numpy(zero_copy_only=False), self._places(committed)
        return pa.array(numbers < places if self.rule == "first" else numbers > places)

    def takes_over(self, duplicates: pa.Array, owners: pa.Array) -> pa.Array:
        """Return whether quarantined duplicates take the place of other rows of the same ids, bool [n]."""
        return self.displaces(pa.array(self._places(duplicates)), owners)

    def _places(self, keys: pa.Array) -> np.typing.NDArray[np.int64]:
        """Return the number of each file; of a file that is listed several times, the one whose rows count."""
        assert self.files is not None
        listed = self.files.to_numpy()
        if self.rule == "first":
            known, places = np.unique(listed, return_index=True)
        else:
            known, places = np.unique(listed[::-1], return_index=True)
            places = len(listed) - 1 - places
        found: np.typing.NDArray[np.int64] = places[np.searchsorted(known, keys.to_numpy(zero_copy_only=False))]
        return found


def choose_rows(rows: pa.Table, rule: Rule) -> tuple[pa.Table, pa.Table]:
    """Return (one row of each id, sorted by id; the other rows)."""
    order = "descending" if rule == "last" else "ascending"
    rows = rows.sort_by([("doc_id", "ascending"), ("file", order), ("position", order)])
    chosen = first_rows(rows, ["doc_id"])
    return rows.filter(pa.array(chosen)), rows.filter(pa.array(~chosen))


def first_rows(rows: pa.Table, names: Sequence[str]) -> np.typing.NDArray[np.bool_]:
    """Return which rows of a sorted table differ from the row before in one of these columns, bool [n]."""
    first: np.typing.NDArray[np.bool_] = np.arange(rows.num_rows) == 0
    for column in (rows[name].combine_chunks() for name in names if rows.num_rows):
        first[1:] |= pc.not_equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
    return first


def refuse_duplicates(rows: pa.Table) -> None:
    """Refuse rows whose id another row of the corpus has."""
    if rows.num_rows:
        row = rows.slice(0, 1).to_pylist()[0]
        raise SourceError(
            f"{rows.num_rows} rows have the id of another row, the first {row['doc_id']!r} at {row['position']} of "
            f"{row['source']}; remove one of them, or set encode.on_duplicate to first or last for a new table"
        )


def displaced_rows(
    schema: pa.Schema, table: Store, plan: str, displaced: Iterable[tuple[str, int]], rule: Rule
) -> pa.Table:
    """Return displaced documents as bad rows; position and bytes are not known, because their files are not read."""
    found = list(displaced)
    names = file_locations(table, plan, {key for _, key in found}) if found else {}
    rows = [
        {
            "file": -1,
            "source_key": key,
            "source": names.get(key, ""),
            "position": -1,
            "doc_id": doc_id,
            "reason": quarantine_rows.DUPLICATE,
            "detail": f"{DETAILS[rule]}; this one was a document until then",
            "raw": "",
        }
        for doc_id, key in found
    ]
    return pa.Table.from_pylist(rows, schema=schema)


@dataclass(frozen=True, slots=True)
class Known:
    """Committed rows of some ids."""

    active: pa.Array  # large_string, ids whose committed row stays the document
    # doc_id, part, row number and source file of rows that new rows of their ids replace: their source file was
    # removed, or they are displaced. content_hash is null if the new text differs.
    superseded: pa.Table
    # large_string, ids of committed documents whose source file is still part of the corpus, but whose new row
    # takes their place
    displaced: pa.Array
    # doc_id, cell, part and row number of all rows to delete: those of removed source files, and displaced ones
    to_delete: pa.Table

    def of(self, cell: int, doc_ids: pa.ChunkedArray) -> "Known":
        """Return what is known of a cell; the active ids are those of all cells."""
        wanted = doc_ids.combine_chunks()
        superseded = self.superseded.filter(pc.is_in(self.superseded["doc_id"], value_set=wanted))
        displaced = self.displaced.filter(pc.is_in(self.displaced, value_set=wanted))
        to_delete = self.to_delete.filter(pc.equal(self.to_delete["cell"], cell))
        return replace(self, superseded=superseded, displaced=displaced, to_delete=to_delete)

    def has_vector(self, doc_ids: pa.ChunkedArray, hashes: pa.Array) -> pa.Array:
        """Return whether the table has the vector of the same text under the same id; bool [n]."""
        places = pc.index_in(doc_ids, value_set=self.superseded["doc_id"].combine_chunks())
        return pc.fill_null(pc.equal(self.superseded["content_hash"].take(places), hashes), False)


def find_known(
    table: Store, files: Sequence[TableFile], rows: pa.Table, removed: frozenset[int], order: SourceOrder, cells: int
) -> Known:
    """Look up ids in the parts of their bucket; only the found ones are kept in memory."""
    wanted, numbers = (rows[name].combine_chunks() for name in ("doc_id", "file"))
    gone = pa.array(sorted(removed), pa.int64())
    active, superseded, displaced, to_delete = [], [_SUPERSEDED.empty_table()], [], [_TO_DELETE.empty_table()]
    for file in files:
        hits = []
        for start, batch, live in _batches(table, file, ["doc_id", "source_file"]):
            keys, ids = batch["source_file"], batch["doc_id"].cast(pa.large_string())
            leaves = pc.and_(pc.is_in(keys, value_set=gone), live)
            places = pc.if_else(live, pc.index_in(ids, value_set=wanted), None)
            found = places.is_valid()
            loses = _loses(order, numbers, places, keys, leaves)
            goes = pc.or_(leaves, loses)
            active.append(ids.filter(pc.and_not(found, goes)))
            displaced.append(ids.filter(loses))
            at = pa.array(np.arange(start, start + batch.num_rows))
            to_delete.append(_rows_to_delete(file.path, ids.filter(goes), at.filter(goes), cells))
            replaced = pc.and_(found, goes)
            columns = {"doc_id": ids, "source_file": keys, "row": at, "new": places}
            hits.append(pa.table({name: values.filter(replaced) for name, values in columns.items()}))
        if sum(some.num_rows for some in hits):
            superseded.append(_with_hashes(table, file, pa.concat_tables(hits), rows["text"]))
    return Known(_joined(active), pa.concat_tables(superseded), _joined(displaced), pa.concat_tables(to_delete))


def unchanged_rows(
    table: Store, files: Sequence[TableFile], known: Known, rows: pa.Table, properties: TableProperties
) -> pa.Table:
    """Return rows of the table for documents with the same text: new source and stored fields, the old vector."""
    whole = live_rows.part_schema(properties)
    schema = pa.schema([whole.field(name) for name in live_rows.content_columns(properties)])
    old = known.superseded.filter(pc.is_in(known.superseded["doc_id"], value_set=rows["doc_id"].combine_chunks()))
    found = [schema.empty_table()]
    for file in files:
        numbers = old.filter(pc.equal(old["path"], file.path))["row"].to_numpy()
        if len(numbers):
            found += [batch.select(schema.names).cast(schema) for batch in _rows(table, file, schema.names, numbers)]
    vectors, rows = pa.concat_tables(found).sort_by("doc_id"), rows.sort_by("doc_id")
    stored = {name: rows[f"stored.{name}"] for name in properties.stored_fields}
    return live_rows.replace_source(properties, vectors, rows["source_key"], stored)


def _rows_to_delete(path: str, ids: pa.Array, rows: pa.Array, cells: int) -> pa.Table:
    of_cell = [cell_of(doc_id, cells) for doc_id in ids.to_pylist()]
    columns = [ids, pa.array(of_cell, pa.int64()), pa.array([path] * len(ids), pa.large_string()), rows]
    return pa.table(columns, schema=_TO_DELETE)


def _with_hashes(table: Store, file: TableFile, rows: pa.Table, texts: pa.ChunkedArray) -> pa.Table:
    """Return replaced rows of a part in ``_SUPERSEDED``, with the content hashes of probably unchanged texts."""
    numbers = rows["row"].to_numpy()
    new = content_keys(content_hash(text) for text in texts.take(rows["new"]).to_pylist())
    old = np.concatenate([part["content_key"].to_numpy() for part in _rows(table, file, ["content_key"], numbers)])
    hashes = np.full(len(numbers), None, object)
    if len(same := np.flatnonzero(new == old)):
        parts = _rows(table, file, ["content_hash"], numbers[same])
        hashes[same] = [one for part in parts for one in part["content_hash"].to_pylist()]
    columns = {
        "doc_id": rows["doc_id"],
        "content_hash": pa.array(hashes, pa.large_string()),
        "path": pa.array([file.path] * rows.num_rows, pa.large_string()),
        "row": rows["row"],
        "source_file": rows["source_file"],
    }
    return pa.table(columns, schema=_SUPERSEDED)


def _rows(
    table: Store, file: TableFile, columns: Sequence[str], numbers: np.typing.NDArray[np.int64]
) -> Iterator[pa.Table]:
    """Yield columns of some rows of a part, whose numbers ascend."""
    for start, batch, _ in _batches(table, file, columns):
        first, last = np.searchsorted(numbers, [start, start + batch.num_rows])
        if first < last:
            yield pa.Table.from_batches([batch]).take(pa.array(numbers[first:last] - start))


def _batches(table: Store, file: TableFile, columns: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch, pa.Array]]:
    """Yield the rows of a part: number of the first one, batch, and which of them are not deleted (bool).

    A part that is not committed yet may be damaged, or deleted as garbage.
    """
    start = 0
    try:
        for batch, live in live_rows.masked_batches(table, file, columns, 65536):
            yield start, batch, live
            start += batch.num_rows
    except ArtifactError as error:
        if not isinstance(cause := error.__cause__, FileNotFoundError | pa.ArrowInvalid):
            raise
        raise CommitError(
            f"{table.uri}/{file.path} was deleted or is damaged ({type(cause).__name__}); run the job again"
        ) from error


def _loses(order: SourceOrder, files: pa.Array, places: pa.Array, keys: pa.Array, leaves: pa.Array) -> pa.Array:
    """Return which committed rows new rows displace, bool [rows of the batch]."""
    meets = pc.and_not(places.is_valid(), leaves).to_numpy(zero_copy_only=False)
    if len(rows := np.flatnonzero(meets)):  # otherwise the files of the source need not be sorted
        displaced = order.displaces(files.take(places.take(pa.array(rows))), keys.take(pa.array(rows)))
        meets[rows] = displaced.to_numpy(zero_copy_only=False)
    return pa.array(meets)


def _joined(ids: list[pa.Array]) -> pa.Array:
    return pa.concat_arrays(ids) if ids else pa.array([], pa.large_string())
