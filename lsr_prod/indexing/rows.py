"""Read and sort the rows of a shard with the memory of one bucket and one batch.

A shard may be larger than memory: its buckets are sorted one by one into mapped Arrow files, and each batch of the
shard merges one slice of every file.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsr_prod.encoding.tables.live_rows import files_of_buckets, read_part, to_files
from lsr_prod.encoding.tables.part import large_strings
from lsr_prod.errors import ArtifactError
from lsr_prod.indexing.plan import ShardPlan


def read_buckets(plan: ShardPlan) -> Iterator[pa.Table]:
    """Yield the rows of a shard from the pinned version of the sparse table, one table per bucket."""
    from lsr_prod.encoding.tables import open_table  # the core wheel cannot open tables

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


def _check_unique(ids: pa.ChunkedArray, last: str | None) -> None:
    repeated = ids.slice(1).filter(pc.equal(ids.slice(1), ids.slice(0, len(ids) - 1)))
    if len(repeated) or ids[0].as_py() == last:
        name = repeated[0].as_py() if len(repeated) else last
        raise ArtifactError(f"document {name!r} is in the table twice; the table is damaged, encode the corpus again")
