"""Encode a cell of a wave: turn its rows into parts of the sparse table and of the quarantine table.

A cell has every row of the ids that hash to it, so duplicates are found here. In an increment the rows of removed files
are deleted, replaced, or kept with their vector.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsr_prod.corpus.source_rows import shorten
from lsr_prod.encoding.cells import known_rows, lookup
from lsr_prod.encoding.commit.markers import mark_finished
from lsr_prod.encoding.encoder import TextEncoder
from lsr_prod.encoding.results import CellOutput, CellResult, Counts
from lsr_prod.encoding.tables import deletions, live_rows, write_part
from lsr_prod.encoding.tables.quarantine_rows import DUPLICATE, write_quarantine
from lsr_prod.errors import (
    ArtifactError,
    EncoderBrokenError,
    EncoderCrashedError,
    EncoderRaisedError,
    EncoderTimeoutError,
    StorageError,
)
from lsr_prod.storage.formats import sparse, table_format

BATCH_SIZE = 2048
"""Documents of one call of the encoder, whose tokens are in memory at once."""
_REASONS: dict[type[Exception], str] = {
    EncoderCrashedError: "encoder_crashed",
    EncoderRaisedError: "encode_failed",
    EncoderTimeoutError: "encoder_timeout",
}
ENCODER_REASONS = frozenset(_REASONS.values())
"""Quarantine reasons of documents that the model failed on."""
_OF_BUNDLE = (ArtifactError, StorageError)  # a child process could not open the bundle: no document is to blame
_SUSPICIOUS = 20  # consecutive single documents that fail: the model itself may be broken


@dataclass(frozen=True, slots=True)
class Failure:
    """Reason why a document has no vector."""

    reason: str  # ``encode_failed``, ``encoder_crashed`` or ``encoder_timeout``
    detail: str  # the error message, ``rows.RAW_LIMIT`` bytes at most


def encode_batches(
    encoder: TextEncoder, texts: Sequence[str], *, batch_size: int = BATCH_SIZE
) -> tuple[sparse.SparseBatch, dict[int, Failure]]:
    """Encode documents; leave out those that make the encoder fail.

    Returns:
        Vectors of the encoded texts, in order, and the failures of the other texts, by position. ``n`` texts cost at
        most 2n calls of the encoder, and ``p`` failing texts at most p * (log2(batch_size) + 1) failed calls.
    """
    parts: list[sparse.SparseBatch] = []
    failed: dict[int, Failure] = {}
    failed_in_a_row = 0
    todo = [range(start, min(start + batch_size, len(texts))) for start in range(0, len(texts), batch_size)][::-1]
    while todo:
        rows = todo.pop()
        try:
            vectors = encoder.encode([texts[i] for i in rows])
            if not np.isfinite(vectors.weights).all():
                raise FloatingPointError("a weight of the vector is NaN or infinite")
        except (EncoderBrokenError, *_OF_BUNDLE):
            raise
        except Exception as error:  # noqa: BLE001 (tokenizers and ONNX Runtime raise bare Exceptions)
            if len(rows) == 1:
                failed[rows[0]] = _failure(error)
                failed_in_a_row += 1
                if failed_in_a_row % _SUSPICIOUS == 0:
                    _check_alive(encoder, failed_in_a_row, error)
                continue
            middle = len(rows) // 2
            todo += [rows[middle:], rows[:middle]]
            continue
        parts.append(vectors)
        failed_in_a_row = 0
    if failed_in_a_row:  # the last call failed, so the model may have broken
        _check_alive(encoder, failed_in_a_row, None)
    return sparse.SparseBatch.concatenate(parts), failed


def _check_alive(encoder: TextEncoder, failed_in_a_row: int, error: Exception | None) -> None:
    """Encode a single word, which every working model can; a device in a bad state fails on every input."""
    try:
        if np.isfinite(encoder.encode(["word"]).weights).all():
            return
        cause: Exception | None = error
    except _OF_BUNDLE:
        raise
    except Exception as found:  # noqa: BLE001 (tokenizers and ONNX Runtime raise bare Exceptions)
        cause = found
    raise EncoderBrokenError(
        f"{failed_in_a_row} documents in a row failed, and so did a plain word ({cause}); the model or its device is "
        "broken, not the documents: look at the log, then run the job again"
    ) from cause


def _failure(error: Exception) -> Failure:
    if (reason := _REASONS.get(type(error))) is not None:
        return Failure(reason, shorten(str(error)))
    return Failure("encode_failed", shorten(f"{type(error).__name__}: {error}"))


@dataclass(frozen=True, slots=True)
class PreparedCell:
    """A cell before the model encodes its new documents."""

    found: lookup.CellRows  # its rows and the committed rows of their ids
    duplicates: pa.Table  # rows whose id has a document already, in this cell or in the table
    fresh: pa.Table  # rows whose text the model encodes
    hashes: pa.Array  # large_string, hashes of their texts
    unchanged: pa.Table  # rows whose text has a vector in the table

    def texts(self) -> list[str]:
        """Return the texts that the model encodes."""
        texts: list[str] = self.fresh["text"].to_pylist()
        return texts


def prepare_cell(task: lookup.WaveTask, found: lookup.CellRows) -> PreparedCell:
    """Decide which rows of a cell are duplicates, which have a vector, and which the model encodes."""
    active = pc.is_in(found.good["doc_id"], value_set=found.known.active)
    duplicates = pa.concat_tables([found.repeated, found.good.filter(active)])
    if task.on_duplicate == "error":
        known_rows.refuse_duplicates(duplicates)
    good = found.good.filter(pc.invert(active))
    hashes = pa.array([table_format.content_hash(text.as_py()) for text in good["text"]], pa.large_string())
    unchanged = found.known.has_vector(good["doc_id"], hashes)
    changed = pc.invert(unchanged)
    return PreparedCell(found, duplicates, good.filter(changed), hashes.filter(changed), good.filter(unchanged))


def write_cell(
    task: lookup.WaveTask,
    cell: PreparedCell,
    vectors: sparse.SparseBatch,
    failures: Mapping[int, Failure],
    follows: Sequence[CellOutput] = (),
) -> CellResult:
    """Write the parts of a cell, without committing them."""
    found, known = cell.found, cell.found.known
    encoded, failed, clipped = _new_rows(cell, task.properties, vectors, failures)
    files = task.files_of(found.bucket)
    carried = known_rows.unchanged_rows(task.table, files, known, cell.unchanged, task.properties)
    fresh = pa.concat_tables([encoded, carried]).sort_by("doc_id")
    origin = f"{task.plan}/{task.wave}"
    ids = known.to_delete["doc_id"].combine_chunks()
    deleted = ids.filter(pc.invert(pc.is_in(ids, value_set=fresh["doc_id"].combine_chunks())))
    detail = (DUPLICATE, known_rows.DETAILS[task.on_duplicate])
    lost = known.superseded.filter(pc.is_in(known.superseded["doc_id"], value_set=known.displaced))
    displaced = zip(lost["doc_id"].to_pylist(), lost["source_file"].to_pylist(), strict=True)
    bad = pa.concat_tables(
        [
            found.rows.filter(pc.is_valid(found.rows["reason"])),
            _as_bad(cell.duplicates, [detail] * cell.duplicates.num_rows),
            known_rows.displaced_rows(found.rows.schema, task.table, task.plan, displaced, task.on_duplicate),
            failed,
        ]
    )
    return CellResult(
        cell=found.cell,
        bucket=found.bucket,
        counts=Counts(
            rows_in=found.rows.num_rows,
            rows_out=fresh.num_rows,
            quarantined_by_reason=dict(Counter(bad["reason"].to_pylist())),
            unread_bytes=pc.sum(bad["unread_bytes"], min_count=0).as_py(),
            unchanged=carried.num_rows,
            deleted=len(deleted),
            superseded=len(ids) - len(deleted),
            displaced=lost.num_rows,
            clipped=clipped,
            weights=len(vectors.weights),
        ),
        parts=(write_part(task.table, f"bucket={found.bucket}", fresh, origin),) if fresh.num_rows else (),
        quarantine=write_quarantine(task.quarantine, task.plan, task.wave, bad) if bad.num_rows else None,
        deletions=deletions.write_deletions(task.table, files, known.to_delete),
        follows=tuple(follows),
    )


def _new_rows(
    cell: PreparedCell,
    properties: table_format.TableProperties,
    vectors: sparse.SparseBatch,
    failures: Mapping[int, Failure],
) -> tuple[pa.Table, pa.Table, int]:
    """Return (rows of the sparse table, rows that the model failed on, number of clipped weights)."""
    rows, hashes = cell.fresh, cell.hashes
    encodable = np.ones(rows.num_rows, dtype=bool)
    encodable[list(failures)] = False
    reasons = [(failures[i].reason, failures[i].detail) for i in sorted(failures)]
    failed = _as_bad(rows.filter(pa.array(~encodable)), reasons)
    mask = pa.array(encodable)
    rows, hashes = rows.filter(mask), hashes.filter(mask)
    impacts, clipped = table_format.quantize(vectors.weights, properties.impact_step, properties.impact_bits)
    stored = {name: rows[f"stored.{name}"] for name in properties.stored_fields}
    postings = vectors.offsets, pa.array(vectors.terms), impacts
    fresh = live_rows.build_rows(properties, rows["doc_id"], postings, hashes, rows["source_key"], stored)
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


class CellWriter:
    """Writes the parts and the marker of one cell at a time. Use as a context manager, which waits for the last cell.

    Attributes:
        results: of the written cells, in order; complete after the context has ended.
    """

    def __init__(self, task: lookup.WaveTask, follows: Mapping[int, Sequence[CellOutput]]) -> None:
        self._task, self._follows = task, follows
        self._thread = ThreadPoolExecutor(1, "write")
        self._last: Future[CellResult] | None = None
        self.results: list[CellResult] = []

    def __enter__(self) -> "CellWriter":
        return self

    def __exit__(self, error: object, *_: object) -> None:
        try:
            if error is None:
                self._wait()
        finally:
            self._thread.shutdown()

    def write(self, cell: PreparedCell, vectors: sparse.SparseBatch, failures: Mapping[int, Failure]) -> None:
        """Begin to write a cell when the one before is written, so that at most two are in memory."""
        self._wait()
        self._last = self._thread.submit(self._write, cell, vectors, failures)

    def _write(self, cell: PreparedCell, vectors: sparse.SparseBatch, failures: Mapping[int, Failure]) -> CellResult:
        task = self._task
        result = write_cell(task, cell, vectors, failures, self._follows.get(cell.found.cell, ()))
        return mark_finished(task.table, task.quarantine, task.plan, task.wave, result)

    def _wait(self) -> None:
        if self._last is not None:
            last, self._last = self._last, None
            self.results.append(last.result())
