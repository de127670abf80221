"""Write an encoded Ray dataset as a sparse table, exactly once."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import ray.data
from ray.data.block import Block, BlockAccessor

from lsr_prod import errors, logs
from lsr_prod.cluster.tasks import usable_nodes, worker_errors
from lsr_prod.cluster.workers import group_by_size, has_several_nodes, merge, require_shared_folders, split
from lsr_prod.config import Deployment
from lsr_prod.corpus.source_rows import row_schema
from lsr_prod.encoding import node_tasks, pipeline, results, scale
from lsr_prod.encoding.cells.cell import ENCODER_REASONS
from lsr_prod.encoding.cells.known_rows import first_rows
from lsr_prod.encoding.commit.committer import Committer, check_on_workers
from lsr_prod.encoding.commit.fence import take_epoch
from lsr_prod.encoding.plans.plan_header import choose_sizes
from lsr_prod.encoding.tables import Table, live_rows, load_table, open_table, sparse_table, write_part
from lsr_prod.encoding.tables.impact_scale import ImpactScale, impact_scale
from lsr_prod.encoding.tables.quarantine_rows import (
    DUPLICATE,
    create_quarantine,
    quarantined_by_reason,
    write_quarantine,
)
from lsr_prod.ray_data.staging import DatasetWrite
from lsr_prod.storage.formats.table_format import TableProperties, bucket_of, quantize

log = logs.get_log(__name__)
_LEAST_BYTES = 64_000_000  # of staged files that a task splits
_MOST_TASKS = 512  # that split, and as many that merge: their product is the number of objects in between
_SAMPLE = 64  # documents of each task, to measure the error of the impact scale
Group = Sequence[str]
"""Names of staged files that a task splits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableWrite:
    """Result of a write."""

    written: bool  # False: an earlier run had finished the write
    documents: int  # rows of the table
    quarantined_by_reason: dict[str, int]  # bad rows by reason
    # rows with id and text of another row, among them those that were staged twice; None: not ``written``
    repeated: int | None
    impact_step: float  # weight of one impact unit
    table: str  # URI of the table
    quarantine: str  # URI of the quarantine
    plan: str  # digest of the settings
    table_version: int  # version of the table
    table_digest: str | None  # digest of its rows; None: rows were deleted since


def write_sparse_table(dataset: ray.data.Dataset, deployment: Deployment) -> TableWrite:
    """Write an encoded dataset as the sparse table of ``encode``, in one commit.

    A run resumes an interrupted one with the same settings: it keeps what that run has encoded. A finished write is not
    repeated, so another corpus needs other ``source.paths`` (they only name the corpus) and another table. Of rows with
    one id and equal texts one is written; if the texts differ, the one with the smallest hash is, and the others are
    quarantined. Without ``encode.impact_step`` the scale follows from the largest weight of all documents.

    Args:
        dataset: result of ``map_batches`` with ``SparseEncode`` and the options of the same deployment.
        deployment: sections ``source``, ``encode`` and ``storage``.

    Raises:
        ConfigError: a setting is wrong, or the table has other rows; nothing was written.
        SourceError: the dataset was not encoded with this deployment; or an id is repeated, and ``encode.on_duplicate``
            is error.
        QuarantineOverflowError: the share of bad rows is above ``encode.max_bad_fraction``; nothing was committed.
        FencedError: a newer run of the same write has taken over.
        StorageError: the store failed.
    """
    write = DatasetWrite.prepare(deployment)
    repeated = None
    if write.finished() is None:
        if has_several_nodes():
            require_shared_folders({"encode.table": write.table.uri, "encode.quarantine": write.quarantine.uri})
        dataset.context.raise_original_map_exception = True  # the wrapper of Ray Data loses the class of an error
        with worker_errors("encoding the dataset"):
            dataset.write_datasink(_StagingSink(write), ray_remote_args={"num_cpus": 0})
        repeated = _commit(write)
    write.table.delete_all([entry.name for entry in write.staged()])
    return _result(write, load_table(write.table), quarantined_by_reason(write.quarantine, write.plan, 1)[0], repeated)


class _StagingSink(ray.data.Datasink[None]):
    """Writes every block as a staged file, whose name is its content."""

    def __init__(self, write: DatasetWrite) -> None:
        self._write = write

    def write(self, blocks: Iterable[Block], ctx: Any) -> None:  # noqa: ARG002 (of the interface)
        """Write some blocks."""
        schema = self._write.schema
        for block in blocks:
            rows = BlockAccessor.for_block(block).to_arrow()
            if missing := sorted({*schema.names} - {*rows.column_names}):
                raise errors.SourceError(
                    f"the dataset has no column {missing[0]}; give the result of map_batches with SparseEncode and the "
                    "options of the same deployment"
                )
            if rows.num_rows:
                write_part(self._write.table, self._write.folder, rows.select(schema.names).cast(schema), "")


def _commit(write: DatasetWrite) -> int | None:
    """Merge the staged rows into parts and commit them; return the number of repeated rows.

    None: another run has committed, and may have deleted staged rows.
    """
    entries = write.staged()
    size = sum(entry.size for entry in entries)
    per_task = max(_LEAST_BYTES, size // _MOST_TASKS)
    groups = [[entry.name for entry in group] for group in group_by_size(entries, lambda entry: entry.size, per_task)]
    opened = open_table(write.table)  # of an interrupted run
    buckets = opened.sparse_properties.buckets if opened else choose_sizes(size, 1, write.encode).buckets
    partitions = min(buckets, len(groups))
    shared = ray.put(write)
    calls = [(shared, group, buckets, partitions) for group in groups]
    splits = split(_split, calls, partitions, task="splitting staged rows", on_ray=True)
    wanted = scale.with_scale(replace(write.wanted, buckets=buckets), _scale(write, splits.notes))
    table = sparse_table.create_sparse_table(write.table, wanted, write.plan)
    sparse_table.check_first_plan(table, write.plan)
    properties = table.sparse_properties
    create_quarantine(write.quarantine)
    epoch = take_epoch(write.table, write.plan, write.source.paths)
    tasks = node_tasks.NodeTasks(lambda: [node["NodeID"] for node in usable_nodes()], 2)
    committer = Committer(epoch, write.table, write.quarantine, check=partial(check_on_workers, tasks))
    committer.fence()
    if write.finished() is not None:
        return None
    merged = merge(_merge, (shared, properties), splits, partitions, task="merging staged rows", on_ray=True)
    cells = sorted((cell for some in merged for cell in some), key=lambda cell: cell.cell)
    _check_overflow(write, cells)
    committer.commit(results.WaveResult(0, tuple(cells)))
    rows: int = sum(note.rows for note in splits.notes)
    return rows - sum(cell.counts.rows_in for cell in cells)


@dataclass(frozen=True, slots=True)
class _Note:
    """Weights of the rows that one task splits."""

    rows: int  # all of them
    documents: int  # rows that are no bad rows
    largest: float  # weight; 0 without any
    sample: np.typing.NDArray[np.float32]  # weights of some documents


def _split(write: DatasetWrite, names: Group, buckets: int, partitions: int) -> tuple[list[pa.Table], _Note]:
    """Return the rows of staged files by partition; a partition has every bucket whose remainder is its number."""
    rows = write.read(names)
    ids = pc.coalesce(rows["doc_id"], rows["raw"]).to_pylist()  # a bad row may have no id
    numbers = np.array([bucket_of(doc_id, buckets) for doc_id in ids], np.int32)
    rows = rows.append_column("bucket", pa.array(numbers))
    order = np.argsort(numbers % partitions, kind="stable")
    bounds = np.searchsorted((numbers % partitions)[order], np.arange(partitions + 1))
    weights = rows["weights"].combine_chunks()
    note = _Note(
        rows=rows.num_rows,
        documents=rows["reason"].null_count,
        largest=pc.max(weights.flatten()).as_py() or 0.0,
        sample=weights.slice(0, _SAMPLE).flatten().to_numpy(),
    )
    rows = rows.take(pa.array(order))
    return [rows.slice(start, end - start) for start, end in pairwise(bounds.tolist())], note


def _scale(write: DatasetWrite, notes: Sequence[_Note]) -> ImpactScale:
    """Return the scale for the largest weight, and its error on a sample."""
    bits, step = write.encode.impact_bits, write.encode.impact_step
    documents = sum(note.documents for note in notes)
    if step is None:
        largest = np.array([note.largest for note in notes if note.largest], np.float32)
        step = impact_scale(largest, bits, documents=documents).step
    sample = np.concatenate([np.zeros(0, np.float32), *(note.sample for note in notes)])
    return impact_scale(sample, bits, documents=documents, step=step)


def _merge(write: DatasetWrite, properties: TableProperties, *tables: pa.Table) -> list[results.CellResult]:
    """Write the parts of a partition; a bucket is a cell, so repeated ids are found here."""
    rows = pa.concat_tables(tables)
    numbers = rows["bucket"].to_numpy()
    return [_cell(write, properties, number, rows.filter(numbers == number)) for number in np.unique(numbers).tolist()]


def _cell(write: DatasetWrite, properties: TableProperties, bucket: int, rows: pa.Table) -> results.CellResult:
    good = rows.filter(rows["reason"].is_null()).sort_by([("doc_id", "ascending"), ("content_hash", "ascending")])
    new_id, new_text = first_rows(good, ["doc_id"]), first_rows(good, ["doc_id", "content_hash"])
    documents, duplicates = good.filter(pa.array(new_id)), good.filter(pa.array(new_text & ~new_id))
    if duplicates.num_rows and write.encode.on_duplicate == "error":
        first = duplicates["doc_id"][0].as_py()
        raise errors.SourceError(
            f"{duplicates.num_rows} rows have the id of another row and another text, the first {first!r}; remove one "
            "of them, or set encode.on_duplicate to first"
        )
    bad = _bad_rows(write, rows.filter(rows["reason"].is_valid()), documents, duplicates)
    weights = documents["weights"].combine_chunks()
    impacts, clipped = quantize(weights.flatten().to_numpy(), properties.impact_step, properties.impact_bits)
    offsets = np.concatenate([[0], np.cumsum(weights.value_lengths().to_numpy())])
    vectors = offsets, documents["terms"].combine_chunks().flatten(), impacts
    keys = pa.repeat(pa.scalar(write.source_key, pa.int64()), documents.num_rows)
    stored = {name: documents[f"stored.{name}"] for name in properties.stored_fields}
    fresh = live_rows.build_rows(properties, documents["doc_id"], vectors, documents["content_hash"], keys, stored)
    counts = results.Counts(
        rows_in=documents.num_rows + len(bad),
        rows_out=documents.num_rows,
        quarantined_by_reason=Counter(row["reason"] for row in bad),
        clipped=clipped,
        weights=len(impacts),
    )
    quarantine = pa.Table.from_pylist(bad, schema=row_schema(()))
    parts = (write_part(write.table, f"bucket={bucket}", fresh, f"{write.plan}/0"),) if fresh.num_rows else ()
    bad_part = write_quarantine(write.quarantine, write.plan, 0, quarantine) if bad else None
    return results.CellResult(bucket, bucket, counts, parts, bad_part)


def _bad_rows(write: DatasetWrite, bad: pa.Table, documents: pa.Table, duplicates: pa.Table) -> list[dict[str, Any]]:
    """Return each distinct bad row; a document that failed in one attempt and not in another is none."""
    columns = ["doc_id", "content_hash", "reason", "detail", "raw"]
    encoded = {*zip(*(documents[name].to_pylist() for name in columns[:2]), strict=True)}
    found: dict[tuple[str | None, ...], dict[str, Any]] = {}
    for row in bad.select(columns).sort_by([(name, "ascending") for name in columns]).to_pylist():
        identity = row["doc_id"], row["content_hash"]
        if row["reason"] not in ENCODER_REASONS or identity not in encoded:
            found.setdefault((*identity, row["raw"]), row)
    for row in duplicates.select(columns).to_pylist():
        detail = "another row of the dataset has this id"
        found[row["doc_id"], row["content_hash"], None] = row | {"reason": DUPLICATE, "detail": detail, "raw": ""}
    place = {"file": 0, "position": -1, "source": "Ray dataset", "source_key": write.source_key}
    return [{name: row[name] for name in ("doc_id", "reason", "detail", "raw")} | place for row in found.values()]


def _check_overflow(write: DatasetWrite, cells: Sequence[results.CellResult]) -> None:
    counts, limit = results.Counts.sum(cell.counts for cell in cells), write.encode.max_bad_fraction
    if counts.quarantined > limit * counts.rows_in:
        top = ", ".join(f"{reason} {count}" for reason, count in Counter(counts.quarantined_by_reason).most_common(3))
        raise errors.QuarantineOverflowError(
            f"{counts.quarantined} of {counts.rows_in} rows are bad ({top}), more than encode.max_bad_fraction = "
            f"{limit}; nothing was committed; fix the dataset, delete {write.table.uri}/{write.folder} and take "
            "SparseEncode.options again, or raise it"
        )


def _result(write: DatasetWrite, table: Table, bad: Mapping[str, int], repeated: int | None) -> TableWrite:
    return TableWrite(
        written=repeated is not None,
        documents=live_rows.total_live_rows(table.file_table()),
        quarantined_by_reason=dict(bad),
        repeated=repeated,
        impact_step=table.sparse_properties.impact_step,
        table=write.table.uri,
        quarantine=write.quarantine.uri,
        plan=write.plan,
        table_version=table.version,
        table_digest=pipeline.table_digest_on_ray(table),
    )
