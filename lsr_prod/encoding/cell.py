"""A cell of a wave: its rows become parts of the sparse table and of the quarantine table.

A cell holds every row of the ids that hash to it, so duplicates meet here and nowhere else. In an increment it also
meets the rows that the table has from files that are gone: they are deleted, replaced, or kept with their vector.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsr_prod.corpus.rows import shorten
from lsr_prod.encoding.batches import Failure
from lsr_prod.encoding.results import CellResult
from lsr_prod.encoding.rewrite import find_known, rewrite, unchanged_rows
from lsr_prod.encoding.row_counts import check_receipts
from lsr_prod.errors import SourceError
from lsr_prod.formats.sparse import SparseBatch
from lsr_prod.formats.table import TableProperties, content_hash, quantize
from lsr_prod.storage import Store
from lsr_prod.tables.quarantine import DUPLICATE, duplicates_elsewhere, write_quarantine
from lsr_prod.tables.rows import build_rows

__all__ = ["Encode", "WaveTask", "encode_cell"]

Encode = Callable[[Sequence[str]], tuple[SparseBatch, Mapping[int, Failure]]]
"""Texts in; vectors of those that could be encoded, in order, and why the others could not, by position."""

_DUPLICATE = (DUPLICATE, "an earlier row of the corpus has this id")


@dataclass(frozen=True, slots=True)
class WaveTask:
    """What an actor must know of its wave.

    Attributes:
        plan: digest of the plan.
        wave: number of the wave.
        cells: cells that ids are hashed to.
        table: the sparse table's folder.
        quarantine: the quarantine table's folder.
        properties: of the sparse table.
        committed: bucket -> parts of the snapshot that the wave is based on.
        removed: keys of the source files whose rows leave the table.
        present: int64, keys of the source files of today; of an increment only.
        read_tasks: tasks that read the wave, each of which gives every cell a receipt.
    """

    plan: str
    wave: int
    cells: int
    table: Store
    quarantine: Store
    properties: TableProperties
    committed: Mapping[int, Sequence[str]]
    removed: frozenset[int] = frozenset()
    present: pa.Array | None = None
    read_tasks: int = 1

    def has(self, paths: Sequence[str]) -> bool:
        """Whether the snapshot that the wave is based on has all these parts."""
        return not paths or {*paths} <= {path for parts in self.committed.values() for path in parts}


def encode_cell(task: WaveTask, cell: int, rows: pa.Table, encode: Encode) -> CellResult:
    """Encode a cell and write its parts; no commit names them yet.

    Args:
        task: the wave.
        cell: number of the cell.
        rows: all of its rows (``rows.row_schema``), a receipt of every read task included.
        encode: the model.

    Raises:
        IncompleteWaveError: rows were lost on the way; nothing was written.
        SourceError: a document leaves whose quarantined duplicate would have to take its place.
    """
    bucket = cell % task.properties.buckets
    rows = check_receipts(rows, task.read_tasks, f"wave {task.wave}, cell {cell}")
    good, again = _first_of_each_id(rows.filter(pc.is_null(rows["reason"])))
    known = find_known(task.table, task.committed.get(bucket, ()), good["doc_id"], task.removed)
    standing = pc.is_in(good["doc_id"], value_set=known.standing)
    duplicates = pa.concat_tables([again, good.filter(standing)])
    good = good.filter(pc.invert(standing))
    hashes = pa.array([content_hash(text) for text in good["text"].to_pylist()], pa.string())
    unchanged = known.has_vector(good["doc_id"], hashes)
    changed = pc.invert(unchanged)

    encoded, poison, clipped = _encode(good.filter(changed), hashes.filter(changed), task.properties, encode)
    carried = unchanged_rows(task.table, known, good.filter(unchanged), task.properties)
    fresh = pa.concat_tables([encoded, carried]).sort_by("doc_id")
    rewritten = rewrite(task.table, bucket, known, fresh, task.removed)
    _refuse_resurrections(task, rewritten.deleted)
    bad = pa.concat_tables(
        [rows.filter(pc.is_valid(rows["reason"])), _as_bad(duplicates, [_DUPLICATE] * duplicates.num_rows), poison]
    )
    return CellResult(
        cell=cell,
        bucket=bucket,
        rows_in=rows.num_rows,
        parts=rewritten.parts,
        quarantine=write_quarantine(task.quarantine, task.plan, task.wave, bad) if bad.num_rows else None,
        reasons=_count(bad["reason"]),
        clipped=clipped,
        removes=rewritten.removes,
        deleted=len(rewritten.deleted),
        kept=rewritten.kept,
        encoded=encoded.num_rows,
    )


def _refuse_resurrections(task: WaveTask, deleted: pa.Array) -> None:
    """An increment does not read the file that the duplicate is in."""
    if task.present is None or not len(deleted):
        return
    for doc_id, source in duplicates_elsewhere(task.quarantine, task.plan, deleted, task.present)[:1]:
        raise SourceError(
            f"document {doc_id} left the corpus, and {source} has another row of it, which was quarantined as a "
            "duplicate; encode into a new encode.table"
        )


def _first_of_each_id(rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """(rows whose id comes first in source order, by id; the others)."""
    rows = rows.sort_by([("doc_id", "ascending"), ("file", "ascending"), ("position", "ascending")])
    ids = rows["doc_id"].combine_chunks()
    first = np.ones(len(ids), dtype=bool)
    if len(ids) > 1:
        first[1:] = pc.not_equal(ids[1:], ids[:-1]).to_numpy(zero_copy_only=False)
    mask = pa.array(first)
    return rows.filter(mask), rows.filter(pc.invert(mask))


def _encode(
    rows: pa.Table, hashes: pa.Array, properties: TableProperties, encode: Encode
) -> tuple[pa.Table, pa.Table, int]:
    """(rows of the sparse table, those the model fails on as bad rows, clipped weights)."""
    vectors, failures = encode(rows["text"].to_pylist())
    encodable = np.ones(rows.num_rows, dtype=bool)
    encodable[list(failures)] = False
    why = [failures[i] for i in sorted(failures)]
    poison = _as_bad(rows.filter(pa.array(~encodable)), [(failure.reason, failure.detail) for failure in why])
    mask = pa.array(encodable)
    rows, hashes = rows.filter(mask), hashes.filter(mask)
    impacts, clipped = quantize(vectors.weights, properties.impact_step, properties.impact_bits)
    stored = {name: rows[f"stored.{name}"] for name in properties.stored_fields}
    postings = vectors.offsets, pa.array(vectors.terms), impacts
    fresh = build_rows(properties, rows["doc_id"], postings, hashes, rows["source_key"], stored)
    return fresh, poison, clipped


def _as_bad(rows: pa.Table, why: Sequence[tuple[str, str]]) -> pa.Table:
    """Rows that read well and are bad all the same, each with its (reason, detail)."""
    columns = {
        "reason": pa.array([reason for reason, _ in why], pa.string()),
        "detail": pa.array([detail for _, detail in why], pa.string()),
        "raw": pa.array([shorten(text) for text in rows["text"].to_pylist()], pa.string()),
    }
    for name, values in columns.items():
        rows = rows.set_column(rows.schema.get_field_index(name), name, values)
    return rows


def _count(reasons: pa.ChunkedArray) -> dict[str, int]:
    return {entry["values"]: entry["counts"] for entry in pc.value_counts(reasons).to_pylist()}
