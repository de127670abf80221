"""The encoder actor: all rows of a bucket in one wave become one part of the table and one of the quarantine.

What goes back to the driver is a row of numbers and names; documents and ids stay here.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lsr_prod.encoding.parts import Part, write_part
from lsr_prod.encoding.quarantine import write_quarantine
from lsr_prod.encoding.rows import shorten
from lsr_prod.formats.card import Kind
from lsr_prod.formats.sparse import SparseBatch
from lsr_prod.formats.table import TableProperties, content_hash, quantise, sparse_schema
from lsr_prod.inference import BundleEncoder
from lsr_prod.storage import Store

__all__ = ["DESCRIPTOR_SCHEMA", "BucketEncoder", "WaveTask", "encode_texts"]

_CHUNK = 2048  # documents whose tokens are in memory at once

_PART = pa.struct([("path", pa.string()), ("size", pa.int64()), ("rows", pa.int64()), ("stats", pa.string())])
DESCRIPTOR_SCHEMA = pa.schema(
    [
        ("bucket", pa.int32()),
        ("rows_in", pa.int64()),
        ("part", _PART),
        ("quarantine", _PART),
        ("reasons", pa.string()),
        ("clipped", pa.int64()),
    ]
)


class TextEncoder(Protocol):
    """What the actor needs of a ``BundleEncoder``."""

    def encode(self, texts: Sequence[str], *, kind: Kind, top_k: int, batch_tokens: int) -> SparseBatch:
        """One vector a text, in order."""


@dataclass(frozen=True, slots=True)
class WaveTask:
    """What an actor must know of its wave.

    Attributes:
        plan: digest of the plan.
        wave: number of the wave.
        bundle: absolute path of the bundle.
        table: the sparse table's folder.
        quarantine: the quarantine table's folder.
        properties: of the sparse table.
        committed: bucket -> parts of the snapshot that the wave is based on.
        locations: path or URI of each source file.
        batch_tokens: tokens of a batch, padding included.
        threads: ONNX Runtime threads.
    """

    plan: str
    wave: int
    bundle: str
    table: Store
    quarantine: Store
    properties: TableProperties
    committed: Mapping[int, Sequence[str]]
    locations: Sequence[str]
    batch_tokens: int
    threads: int


class BucketEncoder:
    """A callable for Ray Data: tables of ``rows.row_schema`` in, tables of ``DESCRIPTOR_SCHEMA`` out."""

    def __init__(self, task: WaveTask) -> None:
        self._task = task
        self._encoder = BundleEncoder(Path(task.bundle), threads=task.threads)

    def __call__(self, rows: pa.Table) -> pa.Table:
        """Encode every bucket that ``rows`` holds; all of a bucket's rows must be there."""
        buckets = sorted(pc.unique(rows["bucket"]).to_pylist()) if rows.num_rows else []
        found = [self._bucket(bucket, rows.filter(pc.equal(rows["bucket"], bucket))) for bucket in buckets]
        return pa.Table.from_pylist(found, schema=DESCRIPTOR_SCHEMA)

    def _bucket(self, bucket: int, rows: pa.Table) -> dict[str, object]:
        task = self._task
        bad = rows.filter(pc.is_valid(rows["reason"]))
        good, duplicates = self._unique(bucket, rows.filter(pc.is_null(rows["reason"])))
        vectors, failed = encode_texts(
            self._encoder, good["text"].to_pylist(), top_k=task.properties.store_k, batch_tokens=task.batch_tokens
        )
        kept = pa.array([i not in failed for i in range(good.num_rows)], pa.bool_())
        poison = _as_bad(good.filter(pc.invert(kept)), "encode_failed", [failed[i] for i in sorted(failed)])
        good = good.filter(kept)
        bad = pa.concat_tables([bad, duplicates, poison])
        part, clipped = self._write(bucket, good, vectors) if good.num_rows else (None, 0)
        quarantine = (
            write_quarantine(task.quarantine, task.plan, task.wave, bad, task.locations) if bad.num_rows else None
        )
        reasons = {entry["values"]: entry["counts"] for entry in pc.value_counts(bad["reason"]).to_pylist()}
        return {
            "bucket": bucket,
            "rows_in": rows.num_rows,
            "part": _part_fields(part),
            "quarantine": _part_fields(quarantine),
            "reasons": json.dumps(reasons, sort_keys=True),
            "clipped": clipped,
        }

    def _unique(self, bucket: int, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
        """(rows whose id comes first in source order and is not in the table yet, by id; the others as bad rows)."""
        rows = rows.sort_by([("doc_id", "ascending"), ("file", "ascending"), ("position", "ascending")])
        ids = rows["doc_id"].to_pylist()
        taken = self._committed_ids(bucket, rows["doc_id"])
        first = [doc_id not in taken and (i == 0 or ids[i - 1] != doc_id) for i, doc_id in enumerate(ids)]
        mask = pa.array(first, pa.bool_())
        again = rows.filter(pc.invert(mask))
        detail = ["an earlier row of the corpus has this id"] * again.num_rows
        return rows.filter(mask), _as_bad(again, "duplicate_id", detail)

    def _committed_ids(self, bucket: int, candidates: pa.ChunkedArray) -> set[str]:
        """Those of ``candidates`` that the table's snapshot has; only they are held, not the bucket's ids."""
        wanted = candidates.combine_chunks()
        found: set[str] = set()
        for path in self._task.committed.get(bucket, ()):
            with self._task.table.open_reader(path) as file:
                for batch in pq.ParquetFile(file).iter_batches(columns=["doc_id"]):
                    ids = batch["doc_id"]
                    found.update(ids.filter(pc.is_in(ids, value_set=wanted)).to_pylist())
        return found

    def _write(self, bucket: int, rows: pa.Table, vectors: SparseBatch) -> tuple[Part, int]:
        properties = self._task.properties
        impacts, clipped = quantise(vectors.weights, properties.impact_step, properties.impact_bits)
        schema = sparse_schema(properties.stored_fields, properties.impact_bits)
        schema = schema.remove(schema.get_field_index("bucket"))  # a partition column lives in the path
        offsets = pa.array(vectors.offsets.astype(np.int32))
        columns = [
            rows["doc_id"],
            pa.ListArray.from_arrays(offsets, pa.array(vectors.terms), type=schema.field("terms").type),
            pa.ListArray.from_arrays(offsets, pa.array(impacts), type=schema.field("impacts").type),
            pa.array([content_hash(text) for text in rows["text"].to_pylist()], pa.string()),
            pa.array(np.zeros(rows.num_rows, np.int64)),
            *(rows[f"stored.{name}"] for name in properties.stored_fields),
        ]
        return write_part(self._task.table, f"bucket={bucket}", pa.table(columns, schema=schema)), clipped


def encode_texts(
    encoder: TextEncoder, texts: Sequence[str], *, top_k: int, batch_tokens: int
) -> tuple[SparseBatch, dict[int, str]]:
    """Encode documents; one that makes the encoder fail is found by halving and left out.

    Args:
        encoder: an opened bundle.
        texts: any number.
        top_k: terms kept of a vector.
        batch_tokens: tokens of a batch, padding included.

    Returns:
        Vectors of the texts that could be encoded, in order, and the error of each one that could not, by position.
        n texts cost 2n calls of the encoder at most.
    """
    parts: list[SparseBatch] = []
    failed: dict[int, str] = {}
    todo = [range(start, min(start + _CHUNK, len(texts))) for start in range(0, len(texts), _CHUNK)][::-1]
    while todo:
        rows = todo.pop()
        try:
            chunk = [texts[i] for i in rows]
            vectors = encoder.encode(chunk, kind="document", top_k=top_k, batch_tokens=batch_tokens)
            if not np.isfinite(vectors.weights).all():
                raise FloatingPointError("the vector has weights that are no finite numbers")
        except Exception as error:  # noqa: BLE001 (tokenizers and ONNX Runtime raise bare Exceptions)
            if len(rows) == 1:
                failed[rows[0]] = shorten(f"{type(error).__name__}: {error}")
                continue
            middle = len(rows) // 2
            todo += [rows[middle:], rows[:middle]]
            continue
        parts.append(vectors)
    return SparseBatch.concatenate(parts), failed


def _as_bad(rows: pa.Table, reason: str, details: Sequence[str]) -> pa.Table:
    columns = {
        "reason": pa.array([reason] * rows.num_rows, pa.string()),
        "detail": pa.array(details, pa.string()),
        "raw": pa.array([shorten(text) for text in rows["text"].to_pylist()], pa.string()),
    }
    for name, values in columns.items():
        rows = rows.set_column(rows.schema.get_field_index(name), name, values)
    return rows


def _part_fields(part: Part | None) -> dict[str, object] | None:
    if part is None:
        return None
    return {"path": part.path, "size": part.size, "rows": part.rows, "stats": part.stats}
