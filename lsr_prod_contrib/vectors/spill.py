"""Rows of an import on disk, one file per bucket, so that memory is bounded by a batch."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

import numpy as np
import pyarrow as pa

from lsr_prod.storage.formats.table_format import bucket_of
from lsr_prod_contrib.vectors.vector import VectorRow, as_batch

SCHEMA = pa.schema(
    [
        ("doc_id", pa.string()),
        ("terms", pa.list_(pa.field("element", pa.int32(), nullable=False))),
        ("weights", pa.list_(pa.field("element", pa.float32(), nullable=False))),
        ("contents", pa.string()),
        ("file", pa.int32()),
        ("position", pa.int64()),
    ]
)
_BATCH_ROWS = 4096
_BATCH_BYTES = 32_000_000


@dataclass(slots=True)
class SpillTotals:
    """Totals over all rows."""

    rows: int = 0  # number of rows
    postings: int = 0  # terms of all rows
    longest: int = 0  # terms of the longest row
    largest: float = 0.0  # the largest weight; 0 without any
    largest_id: str = ""  # document that has it
    unknown: int = 0  # dropped terms outside the vocabulary


class Spill:
    """Writes rows to one Arrow stream per bucket; after the ``with`` block they can be read bucket by bucket."""

    def __init__(self, folder: Path, buckets: int, store_k: int | None) -> None:
        self._folder, self._buckets, self._store_k = folder, buckets, store_k
        self._rows: list[list[tuple[VectorRow, int, int]]] = [[] for _ in range(buckets)]
        self._held = self._bytes = 0
        self._writers: dict[int, pa.ipc.RecordBatchStreamWriter] = {}
        self.totals = SpillTotals()

    def __enter__(self) -> "Spill":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._flush()
        finally:
            for writer in self._writers.values():
                writer.close()

    def add(self, row: VectorRow, file: int, position: int) -> None:
        """Add the row at ``position`` of file number ``file``; rows of a bucket keep their order."""
        if self._store_k is not None:
            row = replace(row, terms=row.terms[: self._store_k], weights=row.weights[: self._store_k])
        totals, count = self.totals, len(row.terms)
        totals.rows += 1
        totals.postings += count
        totals.unknown += row.unknown
        totals.longest = max(totals.longest, count)
        if count and row.weights[0] > totals.largest:
            totals.largest, totals.largest_id = float(row.weights[0]), row.doc_id
        self._rows[bucket_of(row.doc_id, self._buckets)].append((row, file, position))
        self._held += 1
        self._bytes += 8 * count + len(row.contents or "")
        if self._held >= _BATCH_ROWS or self._bytes >= _BATCH_BYTES:
            self._flush()

    def read(self, bucket: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a bucket in the order in which they were added."""
        path = self._path(bucket)
        if not path.exists():
            return
        with pa.OSFile(str(path)) as source, pa.ipc.open_stream(source) as reader:
            yield from reader

    def _flush(self) -> None:
        for bucket, rows in enumerate(self._rows):
            if rows:
                self._writer(bucket).write_batch(_record_batch(rows))
                rows.clear()
        self._held = self._bytes = 0

    def _writer(self, bucket: int) -> pa.ipc.RecordBatchStreamWriter:
        if bucket not in self._writers:
            self._writers[bucket] = pa.ipc.new_stream(str(self._path(bucket)), SCHEMA)
        return self._writers[bucket]

    def _path(self, bucket: int) -> Path:
        return self._folder / f"{bucket}.arrow"


def _record_batch(rows: list[tuple[VectorRow, int, int]]) -> pa.RecordBatch:
    vectors = as_batch([row for row, _, _ in rows])
    offsets = pa.array(vectors.offsets.astype(np.int32))
    return pa.record_batch(
        [
            pa.array([row.doc_id for row, _, _ in rows], pa.string()),
            pa.ListArray.from_arrays(offsets, pa.array(vectors.terms), type=SCHEMA.field("terms").type),
            pa.ListArray.from_arrays(offsets, pa.array(vectors.weights), type=SCHEMA.field("weights").type),
            pa.array([row.contents for row, _, _ in rows], pa.string()),
            pa.array([file for _, file, _ in rows], pa.int32()),
            pa.array([position for _, _, position in rows], pa.int64()),
        ],
        schema=SCHEMA,
    )
