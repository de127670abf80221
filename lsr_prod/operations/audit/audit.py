"""Audit of a table and an index, or of those of a deployment: all ids are read again and compared with the source.

The audit trusts nothing that the commit protocol says: it reads the files of the source, the live rows of the table,
the quarantine and the documents of the index. Ids are compared by 128 bits of their hash. Tasks read files, and split
the records of their rows into partitions by hash; one task compares each partition. The driver holds slices, names of
parts and sums, but no document. If the records would fill more than half of Ray's object store, the hashes are compared
in several passes, each of which reads everything again.
"""

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from lsr_prod.cluster import ray_session
from lsr_prod.cluster.workers import Splits, group_by_size, merge, split
from lsr_prod.config import Deployment, RaySettings, section
from lsr_prod.corpus import listing, pinned_file
from lsr_prod.corpus.filelist import cut_files, file_keys, file_of, iterate_files, list_files
from lsr_prod.corpus.read import require_source_on_nodes
from lsr_prod.encoding.tables import Table, TableFile, open_table
from lsr_prod.encoding.tables.live_rows import total, total_live_rows
from lsr_prod.errors import ConfigError
from lsr_prod.logs import get_log
from lsr_prod.operations.audit.compare import BASE, EXAMPLES, RECORD, TABLE, Comparison, IdRange, compare
from lsr_prod.operations.audit.findings import Audit, Example, Sums, look_up
from lsr_prod.operations.audit.read import (
    Clipping,
    SourceNote,
    read_index,
    read_quarantine,
    read_source,
    read_table,
    read_takedowns,
)
from lsr_prod.operations.audit.scope import Scope, open_index_scope, open_scope
from lsr_prod.operations.table_generations import follow_tables
from lsr_prod.storage import Store, location
from lsr_prod.storage.folders import absolute

log = get_log(__name__)

_SMALL = 32_000_000  # bytes of source and table; reading them takes less time than starting a local Ray
_TASKS = 512  # that read the source, and as many for the table; each makes one object per partition
_TASK_BYTES = 32_000_000
_PARTITION_IDS = 2_000_000  # about 600 MB of memory for the task that compares them
_DOCUMENT_BYTES = 1_000  # of the source, to choose the number of partitions before it is read
_STORE_SHARE = 0.5
_COUNTS = ("documents", "missing", "removed", "outdated", "doubled", "quarantined", "repeated", "taken_down")
_COUNTS_OF_INDEX = ("index_missing", "index_stale", "index_doubled", "exposed")


def audit(scope: Scope, settings: RaySettings) -> Audit:
    """Compare a source with the table and the index that were made from it; Ray is started only for a large one.

    Args:
        scope: what is compared.
        settings: of Ray.

    Raises:
        ConfigError: a node does not see the source.
        SourceError: a file was changed or deleted since it was listed, or cannot be read for now.
        ArtifactError: a part, a deletion vector or a shard is missing or damaged.
        WorkerError: a task failed.
    """
    began = time.perf_counter()
    on_ray = scope.size > _SMALL
    with ray_session(settings) if on_ray else nullcontext():
        if on_ray:
            require_source_on_nodes(file for _, file in iterate_files(scope.files))
        work = _Work.of(scope, on_ray)
        passes, sums = _passes(work), Sums()
        for ids in passes:
            rows = _read(work, ids)
            comparison = Comparison(scope.rule, scope.index is not None, BASE in work.parts)
            for found in merge(compare, (comparison,), rows.splits, ids.count, task="comparing ids", on_ray=on_ray):
                sums.add(found)
            log.info("ids compared", extra={"fields": {"partitions": ids.first + ids.count, "of": ids.partitions}})
        examples = look_up(sums.places, scope, work.pieces, work.parts, on_ray=on_ray)
    return _result(scope, sums, rows, examples, len(passes), round(time.perf_counter() - began, 3))


def verify_deployment(deployment: Deployment, table: str | None, sample: int = 1) -> Audit:
    """Compare the source of a deployment, as it is now, with its table and the published version of its index."""
    followed, options = follow_tables(deployment), deployment.storage.options
    assert deployment.encode is not None
    assert followed.encode is not None
    encode = followed.encode if table is None else deployment.encode
    if table is not None and not location.same_location(absolute(table), absolute(encode.table)):
        encode = encode.model_copy(update={"table": table, "quarantine": None})
    snapshot = open_table(Store(absolute(encode.table), options))
    if snapshot is None:
        raise ConfigError("TABLE", f"{encode.table} is not a table", "give the folder or URI that encode.table names")
    assert deployment.source is not None
    files = list_files(listing.resolve_source(deployment.source, options))
    scope = deployment_scope(followed.model_copy(update={"encode": encode}), files, snapshot)
    if deployment.index is not None:
        scope = replace(scope, index=open_index_scope(Store(absolute(deployment.index.output), options), snapshot))
    return audit(replace(scope, ids=IdRange(share=sample)), deployment.ray)


def deployment_scope(deployment: Deployment, files: pa.Table, table: Table) -> Scope:
    """Return the scope of a table of a deployment, without its index."""
    source, encode = deployment.source, deployment.encode
    assert source is not None
    assert encode is not None
    quarantine = Store(absolute(section.quarantine_uri(encode.quarantine, encode.table)), table.store.options)
    rule = "last" if encode.on_duplicate == "last" else "first"
    return open_scope(source, rule, files, table, quarantine)  # type: ignore[arg-type]


def problems(found: Audit, max_clipped_share: float | None) -> dict[str, int]:
    """Return the findings that must not be, by name."""
    names = ("missing", "removed", "outdated", "doubled", "unread", "index_missing", "index_stale", "index_doubled")
    counts = {name: getattr(found, name) or 0 for name in (*names, "exposed")}
    counts["clipped"] = int(_is_clipped(found, max_clipped_share))
    return {name: count for name, count in counts.items() if count}


def figures(found: Audit) -> Mapping[str, Any]:
    """Return the figures of an audit for the closing table and the ``RESULT`` line."""
    values = {name: value for name, value in asdict(found).items() if name != "examples"}
    return {"documents": values.pop("documents"), "missing": values.pop("missing"), "stale": found.stale, **values}


def remarks(found: Audit, max_clipped_share: float | None) -> list[str]:
    """Return what explains the figures, in sentences; see ``problems``."""
    said = []
    if found.share > 1:
        said.append(f"one of {found.share} ids was compared")
    if found.missing_in_new_files:
        said.append(
            f"{found.missing_in_new_files:,} of {found.missing:,} missing documents are in {found.new_files:,} files "
            "of which the table has no row: they came or changed after the last encode job, or were lost whole"
        )
    if found.index_table_version is not None and found.index_table_version != found.table_version:
        said.append(
            f"the index is of table version {found.index_table_version}, the table is at {found.table_version}; "
            "lsr-prod index build brings it up to date"
        )
    if found.index_compared != found.index_table_version:
        said.append(
            f"files of table version {found.index_table_version} were deleted, so the index was compared with version "
            f"{found.index_compared}"
        )
    if found.unread:
        said.append(
            f"{found.unread:,} files cannot be read to their end; up to {found.unread_bytes:,} bytes count as lost"
        )
    if _is_clipped(found, max_clipped_share):
        said.append(
            f"{found.clipped_share:.2%} of the weights have the largest impact, more than {max_clipped_share:.2%}: the "
            "impact scale is too small for these documents; encode them into a new table"
        )
    return said


@dataclass(frozen=True, slots=True)
class _Work:
    """Slices of the source, and parts of the table by the kind of their records."""

    scope: Scope
    on_ray: bool
    pieces: list[pinned_file.Slice]
    parts: dict[int, list[TableFile]]

    @classmethod
    def of(cls, scope: Scope, on_ray: bool) -> "_Work":
        pieces = [*cut_files(iterate_files(scope.files), scope.source, _limit(scope.files), scope.table.store.options)]
        parts = {TABLE: scope.table.files()}
        if (base := _other_base(scope)) is not None:
            parts[BASE] = base.files()
        return cls(scope, on_ray, pieces, parts)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Records of a pass, and what the tasks found besides; every pass reads all bytes."""

    splits: Splits
    notes: Sequence[SourceNote]
    clipping: Clipping


def _passes(work: _Work) -> list[IdRange]:
    """Return the passes, each with as many partitions as have room in the object store."""
    scope, wanted = work.scope, work.scope.ids
    source = max(total(scope.files, "size") // _DOCUMENT_BYTES, total_live_rows(scope.table.file_table()))
    tables = sum(file.rows or 0 for files in work.parts.values() for file in files)
    shards = 0 if scope.index is None else sum(shard.documents for shard in scope.index.version.shards)
    records = math.ceil((source + tables + shards) / wanted.share)
    partitions = max(math.ceil(source / wanted.share / _PARTITION_IDS), 1)
    per_pass = partitions
    if work.on_ray and (room := _STORE_SHARE * _object_store_bytes()):
        per_pass = max(min(int(partitions * room / (records * RECORD.itemsize + 1)), partitions), 1)
    return [
        replace(wanted, partitions=partitions, first=first, count=min(per_pass, partitions - first))
        for first in range(0, partitions, per_pass)
    ]


def _read(work: _Work, ids: IdRange) -> _Rows:
    """Read everything and split the records of a pass."""
    scope, options = work.scope, work.scope.table.store.options
    groups = group_by_size(work.pieces, lambda piece: piece.size, _limit(scope.files))
    tasks = [(group, scope.source, options, ids, scope.stored) for group in groups]
    source = split(read_source, tasks, ids.count, task="reading the source", on_ray=work.on_ray)
    parts, clipping = [*source.parts], Clipping()
    for kind, files in work.parts.items():
        snapshot = scope.table if kind == TABLE else _other_base(scope)
        assert snapshot is not None
        found = _read_table(work, snapshot, kind, files, ids)
        parts += found.parts
        clipping = sum(found.notes, clipping)
    for some in (_read_quarantine(work, ids), _read_index(work, ids)):
        parts += some
    return _Rows(Splits(parts, []), source.notes, clipping)


def _read_table(work: _Work, snapshot: Table, kind: int, files: Sequence[TableFile], ids: IdRange) -> Splits:
    scope, top = work.scope, None
    if scope.clipping and kind == TABLE:
        top = (1 << snapshot.sparse_properties.impact_bits) - 1
    fields = scope.stored_fields if kind == TABLE else ()
    groups = group_by_size([*enumerate(files)], lambda item: item[1].size, _limit(snapshot.file_table()))
    tasks = [(snapshot.store, group, kind, fields, top, ids) for group in groups]
    return split(read_table, tasks, ids.count, task="reading the table", on_ray=work.on_ray)


def _read_quarantine(work: _Work, ids: IdRange) -> list[Sequence[Any]]:
    if (table := work.scope.quarantine) is None:
        return []
    groups = group_by_size(table.files(), lambda file: file.size, _limit(table.file_table()))
    tasks = [(table.store, group, ids) for group in groups]
    return split(read_quarantine, tasks, ids.count, task="reading the quarantine", on_ray=work.on_ray).parts


def _read_index(work: _Work, ids: IdRange) -> list[Sequence[Any]]:
    if (index := work.scope.index) is None:
        return []
    shards = enumerate(zip(index.version.shards, index.version.tombstones, strict=True))
    tasks = [(index.store, shard, number, tombstones, ids) for number, (shard, tombstones) in shards]
    found = split(read_index, tasks, ids.count, task="reading the index", on_ray=work.on_ray)
    hidden = [(index.store, index.version, ids)]
    taken_down = split(read_takedowns, hidden, ids.count, task="reading the takedowns", on_ray=work.on_ray)
    return [*found.parts, *taken_down.parts]


def _result(
    scope: Scope, sums: Sums, rows: _Rows, examples: dict[str, list[Example]], passes: int, seconds: float
) -> Audit:
    unread = [one for note in rows.notes for one in note.unread]
    keys = file_keys(scope.files)
    new = np.flatnonzero(~np.isin(keys, np.array([*sums.source_files], np.int64)))
    counts, index = sums.counts, scope.index
    of_index = {name: None if index is None else counts[name] for name in _COUNTS_OF_INDEX}
    places = [Example("", f"{_location(scope, one.file)} from {one.position} on: {one.detail}") for one in unread]
    return Audit(
        **{**{name: counts[name] for name in _COUNTS}, **of_index},  # type: ignore[arg-type]
        unread=len({one.file for one in unread}),
        unread_bytes=sum(one.size for one in unread),
        bad_rows=sum(note.bad.total() for note in rows.notes),
        files=len(keys),
        new_files=len(new),
        missing_in_new_files=sum(sums.missing_files[file] for file in new.tolist()),
        clipped_share=rows.clipping.top / max(rows.clipping.weights, 1) if scope.clipping else None,
        table_version=scope.table.version,
        index_table_version=None if index is None else index.version.table_version,
        index_compared=None if index is None else (index.base or scope.table).version,
        share=scope.ids.share,
        passes=passes,
        record_bytes=sums.record_bytes,
        seconds=seconds,
        examples={**examples, **({"unread": places[:EXAMPLES]} if places else {})},
    )


def _object_store_bytes() -> float:
    import ray

    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    return resources.get("object_store_memory", 0.0)


def _other_base(scope: Scope) -> Table | None:
    """Return the snapshot that the index was built from, if it is another one than that of the table."""
    base = None if scope.index is None else scope.index.base
    return None if base is scope.table else base


def _limit(files: pa.Table) -> int:
    return max(_TASK_BYTES, total(files, "size") // _TASKS)


def _location(scope: Scope, number: int) -> str:
    return file_of(scope.files.slice(number, 1).to_pylist()[0]).location


def _is_clipped(found: Audit, max_clipped_share: float | None) -> bool:
    return max_clipped_share is not None and (found.clipped_share or 0.0) > max_clipped_share
