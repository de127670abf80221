"""Read and sort the rows of a shard with the memory of one bucket and one batch.

A shard may be larger than memory: its buckets are sorted one by one into mapped Arrow files, and each batch of the
shard merges one slice of every file. The merged rows are spilled again, so that they can be taken in another order.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsr_prod.errors import ArtifactError
from lsr_prod.indexing.plan import ShardPlan
from lsr_prod.tables.live_rows import files_of_buckets, read_part, to_files
from lsr_prod.tables.part import large_strings


def read_buckets(plan: ShardPlan) -> Iterator[pa.Table]:
    """Yield the rows of a shard from the pinned version of the sparse table, one table per bucket."""
    from lsr_prod.tables import open_table  # the core wheel cannot open tables

    table = open_table(plan.table, plan.table_version)
    if table is None:
        raise ArtifactError(f"{plan.table.uri} is no longer a table; encode the corpus again")
    columns = ["doc_id", "terms", "impacts", *plan.layout.stored_fields]
    schema = pa.schema([table.schema.field(name) for name in columns])
    files = files_of_buckets(table.file_table(), plan.buckets)
    for bucket in plan.buckets:
        mine = to_files(files_of_buckets(files, [bucket]))
        parts = (read_part(table.store, file, schema) for file in mine)
        yield pa.concat_tables([schema.empty_table(), *parts])


def spill_sorted(tables: Iterable[pa.Table], folder: Path) -> list[pa.Table]:
    """Sort each table by ``doc_id`` into a file in ``folder`` and map it; strings become ``large_string``."""
    spilled = []
    for number, table in enumerate(tables):
        if not table.num_rows:
            continue
        schema = large_strings(table.schema)
        path = str(folder / f"{number}.arrow")
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            writer.write_table(table.cast(schema).sort_by("doc_id"))
        spilled.append(pa.ipc.open_file(pa.memory_map(path)).read_all())
    return spilled


def merge_by_id(tables: Sequence[pa.Table], batch_rows: int) -> Iterator[pa.Table]:
    """Merge tables sorted by ``doc_id`` and yield the rows in order, in tables of ``batch_rows`` rows."""
    if not tables:
        return
    ids = pa.chunked_array([chunk for table in tables for chunk in table["doc_id"].chunks])
    order = pc.sort_indices(ids).to_numpy()
    ends = np.cumsum([table.num_rows for table in tables])
    taken = np.zeros(len(tables), dtype=np.int64)
    last: str | None = None
    for start in range(0, len(order), batch_rows):
        owners = np.searchsorted(ends, order[start : start + batch_rows], side="right")
        counts = np.bincount(owners, minlength=len(tables))
        slices = [table.slice(at, n) for table, at, n in zip(tables, taken, counts, strict=True) if n]
        taken += counts
        batch = pa.concat_tables(slices).combine_chunks().sort_by("doc_id").combine_chunks()
        _check_unique(batch["doc_id"], last)
        last = batch["doc_id"][-1].as_py()
        yield batch


class SpilledRows:
    """Columns of all rows in one file, by id; rows can be taken in any order once it is finished."""

    def __init__(self, path: Path, schema: pa.Schema, batch_rows: int) -> None:
        self._path = path
        self._schema = schema
        self._batch_rows = batch_rows
        self._sink = pa.OSFile(str(path), "wb")
        self._writer = pa.ipc.new_file(self._sink, schema)
        self._batches: list[pa.RecordBatch] = []

    def add(self, rows: pa.Table) -> None:
        """Append a batch of ``batch_rows`` rows; only the final one may be smaller."""
        self._writer.write_table(rows.select(self._schema.names).cast(self._schema))

    def finish(self) -> None:
        """Close the file and map it for ``take``."""
        self._writer.close()
        self._sink.close()
        reader = pa.ipc.open_file(pa.memory_map(str(self._path)))
        self._batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]

    def text_bytes(self, fields: Sequence[str]) -> int:
        """Return the bytes of the values of some columns."""
        sums = (pc.sum(pc.binary_length(batch[name])).as_py() for batch in self._batches for name in fields)
        return sum(size or 0 for size in sums)

    def take(self, rows: npt.NDArray[Any]) -> pa.Table:
        """Return the rows with these numbers, in that order."""
        owners = rows // self._batch_rows
        order = np.argsort(owners, kind="stable")
        parts, place = [], 0
        for owner, count in zip(*np.unique(owners, return_counts=True), strict=True):
            mine = rows[order[place : place + count]].astype(np.int64) - int(owner) * self._batch_rows
            parts.append(self._batches[owner].take(pa.array(mine)))
            place += count
        back = np.empty(len(rows), np.int64)
        back[order] = np.arange(len(rows))
        return pa.Table.from_batches(parts, self._schema).combine_chunks().take(pa.array(back))


def _check_unique(ids: pa.ChunkedArray, last: str | None) -> None:
    repeated = ids.slice(1).filter(pc.equal(ids.slice(1), ids.slice(0, len(ids) - 1)))
    if len(repeated) or ids[0].as_py() == last:
        name = repeated[0].as_py() if len(repeated) else last
        raise ArtifactError(f"document {name!r} is in the table twice; the table is damaged, encode the corpus again")
