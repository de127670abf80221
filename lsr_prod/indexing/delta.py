"""Delta shards: chosen documents of the table. A shard is named by its rows, so equal rows are never built twice."""

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsr_prod.cluster.workers import Workers
from lsr_prod.encoding.tables import TableFile, live_rows
from lsr_prod.indexing.base_shard import BuiltShard, build_shard
from lsr_prod.indexing.changes import RowChange, find_rows, row_schema
from lsr_prod.indexing.index_plan import IndexPlan, ShardPlan
from lsr_prod.indexing.tombstones import as_ids, load_tombstones, read_ids, scan_size
from lsr_prod.storage import Store
from lsr_prod.storage.formats.digests import digest_json
from lsr_prod.storage.formats.index_format import INDEX_FORMAT, IndexVersion, ShardManifest, Tombstones
from lsr_prod.storage.formats.table_format import bucket_of


def choose_merged(shards: Sequence[ShardManifest], upserts: int, limit: int) -> tuple[int, ...]:
    """Return the places of the delta shards that are merged into the new one; none if there are at most ``limit``.

    Beyond the limit, the smallest delta shards are merged until few enough are left, and then all that are no larger
    than the merged shard so far. So a document is rewritten a number of times that grows with the logarithm of the
    number of increments.
    """
    deltas = sorted((shard.documents, place) for place, shard in enumerate(shards) if shard.role == "delta")
    if len(deltas) + bool(upserts) <= limit:
        return ()
    merged: list[int] = []
    total = upserts
    for documents, place in deltas:
        if len(deltas) - len(merged) < limit and documents > total:
            break
        merged.append(place)
        total += documents
    return tuple(sorted(merged))


@dataclass(frozen=True, slots=True)
class Selection:
    """Chosen documents of one bucket."""

    bucket: int  # the bucket
    store: Store  # the table's folder
    files: tuple[TableFile, ...]  # the bucket's parts at the pinned version
    schema: pa.Schema  # columns to read
    ids: pa.Array  # large_string, sorted

    @property
    def size(self) -> int:
        """Total bytes of the parts."""
        return sum(file.size for file in self.files)

    def read(self) -> pa.Table:
        """Read the rows of the documents, sorted by id."""
        return find_rows(self.store, self.files, self.schema, self.ids)


def select_documents(
    plan: IndexPlan,
    index: Store,
    base: IndexVersion,
    takedowns: Sequence[str],
    changes: Sequence[RowChange],
    merged: Sequence[int],
    workers: Workers,
) -> tuple[Selection, ...]:
    """Select the documents of a new delta shard: those that changed, and the active ones of the shards it merges.

    Returns:
        One selection for each bucket that has such documents, by rising bucket.
    """
    ids: dict[int, list[pa.Array]] = defaultdict(list)
    for change in changes:
        ids[change.bucket].append(change.upserts)
    hidden = as_ids(takedowns)
    tasks = [(index, base.shards[place], base.tombstones[place], hidden) for place in merged]
    size = scan_size(index, [base.shards[place] for place in merged])
    for _, active in workers.run(active_ids, tasks, size=size):
        by_bucket: dict[int, list[str]] = defaultdict(list)
        for doc_id in active.to_pylist():
            by_bucket[bucket_of(doc_id, plan.properties.buckets)].append(doc_id)
        for bucket, some in by_bucket.items():
            ids[bucket].append(pa.array(some, pa.large_string()))
    schema = row_schema(plan.snapshot, plan.properties.stored_fields)
    store = plan.snapshot.store
    wanted = {bucket: pa.chunked_array(some).unique().sort() for bucket, some in sorted(ids.items())}
    parts: dict[int, list[TableFile]] = defaultdict(list)
    for file in live_rows.to_files(live_rows.files_of_buckets(plan.snapshot.file_table(), wanted)):
        parts[int(file.partition["bucket"] or 0)].append(file)
    return tuple(
        Selection(bucket, store, tuple(parts[bucket]), schema, some) for bucket, some in wanted.items() if len(some)
    )


def active_ids(index: Store, shard: ShardManifest, tombstones: Tombstones | None, takedowns: pa.Array) -> pa.Array:
    """Return the ids of a shard that no later shard supersedes; takedowns stay included, as they may be restored."""
    ids = read_ids(index, shard).combine_chunks()
    if tombstones is None:
        return ids
    active = np.ones(len(ids), np.bool_)
    active[load_tombstones(index, shard, tombstones)] = False
    return ids.filter(pc.or_(pa.array(active), pc.is_in(ids, value_set=takedowns)))


def digest_selection(selection: Selection) -> tuple[str, int]:
    """Return the sha256 (hex) of the rows of a selection, and their number."""
    rows = selection.read()
    return digest_rows(rows), rows.num_rows


def digest_rows(rows: pa.Table) -> str:
    """Return the sha256 (hex) of rows in order; it covers lengths and values, not the layout of the Arrow buffers."""
    sha = hashlib.sha256()
    columns = [rows[name].combine_chunks() for name in rows.column_names]
    while columns:
        column = columns.pop(0)
        if pa.types.is_list(column.type):
            lengths, values = pc.list_value_length(column), b""
            if pa.types.is_integer(column.type.value_type):
                values = column.flatten().to_numpy().astype("<i4").tobytes()
            else:
                columns.insert(0, column.flatten())
        else:
            texts = column if pa.types.is_large_string(column.type) else column.cast(pa.large_string())
            lengths, values = pc.binary_length(texts), "".join(pc.fill_null(texts, "").to_pylist()).encode()
        sha.update(pc.fill_null(lengths, -1).to_numpy().astype("<i8").tobytes())
        sha.update(np.int64(len(values)).tobytes())
        sha.update(values)
    return sha.hexdigest()


def plan_delta(plan: IndexPlan, selections: Sequence[Selection], digests: Sequence[tuple[str, int]]) -> ShardPlan:
    """Plan the shard of the selected documents; do not build it if it has no documents."""
    buckets = [selection.bucket for selection in selections]
    identity = {
        "format": INDEX_FORMAT,
        "role": "delta",
        "buckets": buckets,
        "rows": [sha for sha, _ in digests],
        "layout": plan.layout.identity(),
    }
    return ShardPlan(
        digest_json(identity),
        plan.snapshot.store,
        plan.snapshot.version,
        tuple(buckets),
        sum(rows for _, rows in digests),
        plan.layout,
        "delta",
        plan.properties.bundle_digest,
    )


def build_delta(plan: ShardPlan, selections: Sequence[Selection], index: Store | Path) -> BuiltShard:
    """Build a delta shard, or return the one in the index; the rows of one bucket are in memory at a time."""
    return build_shard(plan, (selection.read() for selection in selections), index)
