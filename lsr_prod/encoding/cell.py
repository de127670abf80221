"""Encode a cell of a wave: turn its rows into parts of the sparse table and of the quarantine table.

A cell has every row of the ids that hash to it, so duplicates are found here. In an increment the rows of removed files
are deleted, replaced, or kept with their vector.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsr_prod.corpus.rows import shorten
from lsr_prod.encoding.batches import ENCODER_REASONS, Failure
from lsr_prod.encoding.duplicates import DETAILS, Rule, SourceOrder, choose_rows, displaced_rows, refuse_duplicates
from lsr_prod.encoding.results import CellResult
from lsr_prod.encoding.rewrite import Known, find_known, rewrite, unchanged_rows
from lsr_prod.encoding.row_counts import check_row_counts
from lsr_prod.errors import SourceError
from lsr_prod.formats.sparse import SparseBatch
from lsr_prod.formats.table import TableProperties, cell_of, content_hash, quantize
from lsr_prod.storage import Store
from lsr_prod.tables.quarantine import DUPLICATE, duplicates_elsewhere, ids_with_reason, write_quarantine
from lsr_prod.tables.rows import build_rows

__all__ = ["Encode", "WaveTask", "all_displaced", "displaced_parts", "encode_cell", "may_displace"]

Encode = Callable[[Sequence[str]], tuple[SparseBatch, Mapping[int, Failure]]]
"""Takes texts; returns vectors of the encoded texts, in order, and failures of the others, by position."""


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
        present: int64, keys of the current source files in their order; only for an increment.
        on_duplicate: which row of an id becomes the document.
        displaced: bucket -> parts that all of its cells replace, because rows of some of them displace documents.
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
    on_duplicate: Rule = "first"
    displaced: Mapping[int, Sequence[str]] = field(default_factory=dict)
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
    good, repeated, known = _look_up(task, bucket, rows)
    active = pc.is_in(good["doc_id"], value_set=known.active)
    duplicates = pa.concat_tables([repeated, good.filter(active)])
    if task.on_duplicate == "error":
        refuse_duplicates(duplicates)
    good = good.filter(pc.invert(active))
    hashes = pa.array([content_hash(text.as_py()) for text in good["text"]], pa.large_string())
    unchanged = known.has_vector(good["doc_id"], hashes)
    changed = pc.invert(unchanged)

    encoded, failed, clipped = _encode(good.filter(changed), hashes.filter(changed), task.properties, encode)
    carried = unchanged_rows(task.table, known, good.filter(unchanged), task.properties)
    fresh = pa.concat_tables([encoded, carried]).sort_by("doc_id")
    touched = sorted({*known.touched, *task.displaced.get(bucket, ())})
    rewritten = rewrite(task.table, cell, task.cells, task.properties.buckets, known, touched, fresh, task.removed)
    _refuse_returning_duplicates(task, cell, rewritten.deleted, known, good)
    detail = (DUPLICATE, DETAILS[task.on_duplicate])
    lost = known.superseded.filter(pc.is_in(known.superseded["doc_id"], value_set=known.displaced))
    displaced = zip(lost["doc_id"].to_pylist(), lost["source_file"].to_pylist(), strict=True)
    bad = pa.concat_tables(
        [
            rows.filter(pc.is_valid(rows["reason"])),
            _as_bad(duplicates, [detail] * duplicates.num_rows),
            displaced_rows(rows.schema, task.table, task.plan, displaced, task.on_duplicate),
            failed,
        ]
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
        displaced=lost.num_rows,
        encoded=encoded.num_rows,
    )


def displaced_parts(task: WaveTask, rows: pa.Table) -> dict[int, tuple[str, ...]]:
    """Return the parts with documents that rows of some cells displace, by bucket.

    All cells of a bucket have to replace the same parts, and each knows its own rows only.

    Args:
        task: the wave.
        rows: all rows of some cells, with their row counts.
    """
    found: dict[int, set[str]] = defaultdict(set)
    for cell in pc.unique(rows["cell"]).to_pylist():
        bucket = cell % task.properties.buckets
        known = _look_up(task, bucket, rows.filter(pc.equal(rows["cell"], cell)))[2]
        lost = known.superseded.filter(pc.is_in(known.superseded["doc_id"], value_set=known.displaced))
        found[bucket].update(lost["path"].to_pylist())
    return {bucket: tuple(sorted(paths)) for bucket, paths in found.items() if paths}


def all_displaced(
    found: Iterable[Mapping[int, Sequence[str]]], done: Iterable[CellResult]
) -> dict[int, tuple[str, ...]]:
    """Return the parts that all cells of each bucket replace.

    Args:
        found: of ``displaced_parts``, for the cells that are encoded.
        done: cells that an earlier attempt has finished.
    """
    parts: dict[int, set[str]] = defaultdict(set)
    for some in found:
        for bucket, paths in some.items():
            parts[bucket].update(paths)
    for cell in done:
        parts[cell.bucket].update(cell.removes)
    return {bucket: tuple(sorted(paths)) for bucket, paths in parts.items() if paths}


def may_displace(task: WaveTask) -> bool:
    """Return whether cells of one bucket have to agree on the parts of displaced documents before they are encoded."""
    several = task.cells > task.properties.buckets
    return several and (task.on_duplicate == "last" or (task.on_duplicate == "first" and task.present is not None))


def _look_up(task: WaveTask, bucket: int, rows: pa.Table) -> tuple[pa.Table, pa.Table, Known]:
    """Return one row of each id, the other rows, and the committed rows of these ids."""
    good, repeated = choose_rows(rows.filter(pc.is_null(rows["reason"])), task.on_duplicate)
    order = SourceOrder(task.on_duplicate, task.present)
    return good, repeated, find_known(task.table, task.committed.get(bucket, ()), good, task.removed, order)


def _refuse_returning_duplicates(task: WaveTask, cell: int, deleted: pa.Array, known: Known, good: pa.Table) -> None:
    """Refuse to delete or replace a document if a quarantined duplicate, whose file is not read, has to replace it."""
    if task.present is None or not task.removed:
        return
    order = SourceOrder(task.on_duplicate, task.present)
    gone = pa.array(sorted(task.removed), pa.int64())
    replaced = known.superseded["doc_id"].filter(pc.is_in(known.superseded["source_file"], value_set=gone))
    # A row that the model failed on is no document, but its duplicates were quarantined too.
    failed = _of_cell(task, cell, ids_with_reason(task.quarantine, task.plan, ENCODER_REASONS, gone))
    absent = deleted.filter(pc.invert(pc.is_in(deleted, value_set=known.displaced)))
    leaving = pa.concat_arrays([absent, *replaced.chunks, failed])
    found = duplicates_elsewhere(task.quarantine, task.plan, leaving, task.present) if len(leaving) else []
    ids = good["doc_id"].combine_chunks()
    for doc_id, source, key in found:
        place = pc.index(ids, pa.scalar(doc_id, pa.large_string())).as_py()
        new = good["file"].slice(place, 1).combine_chunks() if place >= 0 else None
        if new is None or order.precedes(pa.array([key], pa.int64()), new):
            raise SourceError(
                f"document {doc_id} was removed from the corpus, but {source} has another row with its id, which was "
                "quarantined as a duplicate; encode into a new encode.table"
            )


def _of_cell(task: WaveTask, cell: int, doc_ids: pa.Array) -> pa.Array:
    return doc_ids.filter(pa.array([cell_of(doc_id, task.cells) == cell for doc_id in doc_ids.to_pylist()], pa.bool_()))


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
