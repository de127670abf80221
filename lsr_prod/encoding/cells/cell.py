"""Encode a cell of a wave: turn its rows into parts of the sparse table and of the quarantine table.

A cell has every row of the ids that hash to it, so duplicates are found here. In an increment the rows of removed files
are deleted, replaced, or kept with their vector.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsr_prod.corpus.rows import shorten
from lsr_prod.encoding.cells.batches import Failure
from lsr_prod.encoding.cells.duplicates import DETAILS, displaced_rows, refuse_duplicates
from lsr_prod.encoding.cells.known import unchanged_rows
from lsr_prod.encoding.cells.lookup import CellRows, WaveTask
from lsr_prod.encoding.deletions import write_deletions
from lsr_prod.encoding.results import CellOutput, CellResult, Counts
from lsr_prod.formats.sparse import SparseBatch
from lsr_prod.formats.table import TableProperties, content_hash, quantize
from lsr_prod.tables import write_part
from lsr_prod.tables.quarantine import DUPLICATE, write_quarantine
from lsr_prod.tables.rows import build_rows


@dataclass(frozen=True, slots=True)
class PreparedCell:
    """A cell before the model encodes its new documents.

    Attributes:
        found: its rows and the committed rows of their ids.
        duplicates: rows whose id has a document already, in this cell or in the table.
        fresh: rows whose text the model encodes.
        hashes: large_string, hashes of their texts.
        unchanged: rows whose text has a vector in the table.
    """

    found: CellRows
    duplicates: pa.Table
    fresh: pa.Table
    hashes: pa.Array
    unchanged: pa.Table

    def texts(self) -> list[str]:
        """Return the texts that the model encodes."""
        texts: list[str] = self.fresh["text"].to_pylist()
        return texts


def prepare_cell(task: WaveTask, found: CellRows) -> PreparedCell:
    """Decide which rows of a cell are duplicates, which have a vector, and which the model encodes."""
    active = pc.is_in(found.good["doc_id"], value_set=found.known.active)
    duplicates = pa.concat_tables([found.repeated, found.good.filter(active)])
    if task.on_duplicate == "error":
        refuse_duplicates(duplicates)
    good = found.good.filter(pc.invert(active))
    hashes = pa.array([content_hash(text.as_py()) for text in good["text"]], pa.large_string())
    unchanged = found.known.has_vector(good["doc_id"], hashes)
    changed = pc.invert(unchanged)
    return PreparedCell(found, duplicates, good.filter(changed), hashes.filter(changed), good.filter(unchanged))


def write_cell(
    task: WaveTask,
    cell: PreparedCell,
    vectors: SparseBatch,
    failures: Mapping[int, Failure],
    follows: Sequence[CellOutput] = (),
) -> CellResult:
    """Write the parts of a cell, without committing them."""
    found, known = cell.found, cell.found.known
    encoded, failed, clipped = _new_rows(cell, task.properties, vectors, failures)
    files = task.files_of(found.bucket)
    carried = unchanged_rows(task.table, files, known, cell.unchanged, task.properties)
    fresh = pa.concat_tables([encoded, carried]).sort_by("doc_id")
    origin = f"{task.plan}/{task.wave}"
    going = known.going["doc_id"].combine_chunks()
    deleted = going.filter(pc.invert(pc.is_in(going, value_set=fresh["doc_id"].combine_chunks())))
    detail = (DUPLICATE, DETAILS[task.on_duplicate])
    lost = known.superseded.filter(pc.is_in(known.superseded["doc_id"], value_set=known.displaced))
    displaced = zip(lost["doc_id"].to_pylist(), lost["source_file"].to_pylist(), strict=True)
    bad = pa.concat_tables(
        [
            found.rows.filter(pc.is_valid(found.rows["reason"])),
            _as_bad(cell.duplicates, [detail] * cell.duplicates.num_rows),
            displaced_rows(found.rows.schema, task.table, task.plan, displaced, task.on_duplicate),
            failed,
        ]
    )
    return CellResult(
        cell=found.cell,
        bucket=found.bucket,
        counts=Counts(
            rows_in=found.rows.num_rows,
            rows_out=fresh.num_rows,
            quarantined_by_reason=_count(bad["reason"]),
            unread_bytes=pc.sum(bad["unread_bytes"], min_count=0).as_py(),
            unchanged=carried.num_rows,
            deleted=len(deleted),
            superseded=len(going) - len(deleted),
            displaced=lost.num_rows,
            clipped=clipped,
            weights=len(vectors.weights),
        ),
        parts=(write_part(task.table, f"bucket={found.bucket}", fresh, origin),) if fresh.num_rows else (),
        quarantine=write_quarantine(task.quarantine, task.plan, task.wave, bad) if bad.num_rows else None,
        deletions=write_deletions(task.table, files, known.going),
        follows=tuple(follows),
    )


def _new_rows(
    cell: PreparedCell, properties: TableProperties, vectors: SparseBatch, failures: Mapping[int, Failure]
) -> tuple[pa.Table, pa.Table, int]:
    """Return (rows of the sparse table, rows that the model failed on, number of clipped weights)."""
    rows, hashes = cell.fresh, cell.hashes
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
