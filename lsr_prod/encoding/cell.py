"""Encode a cell of a wave: turn its rows into parts of the sparse table and of the quarantine table.

A cell has every row of the ids that hash to it, so duplicates are found here. In an increment the rows of removed files
are deleted, replaced, or kept with their vector.
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
from lsr_prod.encoding.row_counts import check_row_counts
from lsr_prod.errors import SourceError
from lsr_prod.formats.sparse import SparseBatch
from lsr_prod.formats.table import TableProperties, content_hash, quantize
from lsr_prod.storage import Store
from lsr_prod.tables.quarantine import DUPLICATE, duplicates_elsewhere, write_quarantine
from lsr_prod.tables.rows import build_rows

__all__ = ["Encode", "WaveTask", "encode_cell"]

Encode = Callable[[Sequence[str]], tuple[SparseBatch, Mapping[int, Failure]]]
"""Takes texts; returns vectors of the encoded texts, in order, and failures of the others, by position."""

_DUPLICATE = (DUPLICATE, "an earlier row of the corpus has this id")


@dataclass(frozen=True, slots=True)
class WaveTask:
    """Description of a wave for the actors.

    Attributes:
        plan: digest of the plan.
        wave: number of the wave.
        cells: number of cells that ids are hashed to.
        table: the sparse table's folder.
        quarantine: the quarantine table's folder.
        properties: of the sparse table.
        committed: bucket -> paths of its parts in the snapshot that the wave is based on.
        removed: keys of the removed source files, whose rows are deleted.
        present: int64, keys of the current source files; only for an increment.
        read_tasks: tasks that read the wave; each sends every cell a row count.
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
        """Return whether the snapshot that the wave is based on has all these parts."""
        return not paths or {*paths} <= {path for parts in self.committed.values() for path in parts}


def encode_cell(task: WaveTask, cell: int, rows: pa.Table, encode: Encode) -> CellResult:
    """Encode a cell and write its parts, without committing them.

    Args:
        task: the wave.
        cell: number of the cell.
        rows: all rows of the cell (``rows.row_schema``), with a row count of every read task.
        encode: encodes texts.

    Raises:
        IncompleteWaveError: rows were lost between reading and encoding; nothing was written.
        SourceError: a deleted document has a quarantined duplicate that would have to replace it.
    """
    bucket = cell % task.properties.buckets
    rows = check_row_counts(rows, task.read_tasks, f"wave {task.wave}, cell {cell}")
    good, repeated = _first_of_each_id(rows.filter(pc.is_null(rows["reason"])))
    known = find_known(task.table, task.committed.get(bucket, ()), good["doc_id"], task.removed)
    active = pc.is_in(good["doc_id"], value_set=known.active)
    duplicates = pa.concat_tables([repeated, good.filter(active)])
    good = good.filter(pc.invert(active))
    hashes = pa.array([content_hash(text.as_py()) for text in good["text"]], pa.large_string())
    unchanged = known.has_vector(good["doc_id"], hashes)
    changed = pc.invert(unchanged)

    encoded, failed, clipped = _encode(good.filter(changed), hashes.filter(changed), task.properties, encode)
    carried = unchanged_rows(task.table, known, good.filter(unchanged), task.properties)
    fresh = pa.concat_tables([encoded, carried]).sort_by("doc_id")
    rewritten = rewrite(task.table, cell, task.cells, task.properties.buckets, known, fresh, task.removed)
    _refuse_returning_duplicates(task, rewritten.deleted)
    bad = pa.concat_tables(
        [rows.filter(pc.is_valid(rows["reason"])), _as_bad(duplicates, [_DUPLICATE] * duplicates.num_rows), failed]
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
        superseded=rewritten.superseded,
        encoded=encoded.num_rows,
    )


def _refuse_returning_duplicates(task: WaveTask, deleted: pa.Array) -> None:
    """Refuse to delete a document with a quarantined duplicate, whose file an increment does not read."""
    if task.present is None or not len(deleted):
        return
    for doc_id, source in duplicates_elsewhere(task.quarantine, task.plan, deleted, task.present)[:1]:
        raise SourceError(
            f"document {doc_id} was removed from the corpus, but {source} has another row with its id, which was "
            "quarantined as a duplicate; encode into a new encode.table"
        )


def _first_of_each_id(rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return (the first row of each id in source order, sorted by id; the other rows)."""
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
    """Return (rows of the sparse table, rows that the model failed on, number of clipped weights)."""
    vectors, failures = encode(rows["text"].to_pylist())
    encodable = np.ones(rows.num_rows, dtype=bool)
    encodable[list(failures)] = False
    reasons = [(failures[i].reason, failures[i].detail) for i in sorted(failures)]
    failed = _as_bad(rows.filter(pa.array(~encodable)), reasons)
    mask = pa.array(encodable)
    rows, hashes = rows.filter(mask), hashes.filter(mask)
    impacts, clipped = quantize(vectors.weights, properties.impact_step, properties.impact_bits)
    stored = {name: rows[f"stored.{name}"] for name in properties.stored_fields}
    postings = vectors.offsets, pa.array(vectors.terms), impacts
    fresh = build_rows(properties, rows["doc_id"], postings, hashes, rows["source_key"], stored)
    return fresh, failed, clipped


def _as_bad(rows: pa.Table, reasons: Sequence[tuple[str, str]]) -> pa.Table:
    """Turn good rows into bad rows, each with its (reason, detail)."""
    columns = {
        "reason": pa.array([reason for reason, _ in reasons], pa.large_string()),
        "detail": pa.array([detail for _, detail in reasons], pa.large_string()),
        "raw": pa.array([shorten(text) for text in rows["text"].to_pylist()], pa.large_string()),
    }
    for name, values in columns.items():
        rows = rows.set_column(rows.schema.get_field_index(name), name, values)
    return rows


def _count(reasons: pa.ChunkedArray) -> dict[str, int]:
    return {entry["values"]: entry["counts"] for entry in pc.value_counts(reasons).to_pylist()}
