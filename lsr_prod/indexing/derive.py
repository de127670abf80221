"""Derive the next index version: a delta shard and tombstones on top of the current version, or all shards.

A delta shard holds the documents that are new or changed; tombstones hide the rows that they replace and the documents
that were deleted. All other shards stay as they are. The last shard that holds a document holds its current row.
"""

from dataclasses import dataclass, replace
from typing import Literal

import pyarrow as pa

from lsr_prod.cluster.workers import Workers
from lsr_prod.config import IndexSettings
from lsr_prod.encoding.tables import Table, live_rows, open_table
from lsr_prod.errors import ArtifactError, PublicationError
from lsr_prod.indexing import delta, index_plan, publish
from lsr_prod.indexing.base_shard import BuiltShard, build_shard, read_buckets
from lsr_prod.indexing.changes import RowChange, changed_parts, changed_rows, row_schema
from lsr_prod.indexing.tombstones import as_ids, hide_everywhere, load_takedowns
from lsr_prod.logs import get_log
from lsr_prod.storage import Store, index_versions, is_remote
from lsr_prod.storage.formats.index_format import IndexVersion

log = get_log(__name__)
Mode = Literal["full", "delta", "merge", "unchanged"]


@dataclass(frozen=True, slots=True)
class TableChanges:
    """Changes of the table since an index version was built."""

    base_parts: str = ""  # ``table_parts`` of the index version; "" if the table was not compared with one
    rows: tuple[RowChange, ...] = ()  # changed documents, by rising bucket
    unknown: str = ""  # why the changed documents are not known; "" if they are

    @property
    def upserts(self) -> int:
        """Documents that are new or changed."""
        return sum(len(change.upserts) for change in self.rows)

    @property
    def deletes(self) -> int:
        """Documents that the table no longer has."""
        return sum(len(change.deletes) for change in self.rows)


def compare_table(plan: index_plan.IndexPlan, base: IndexVersion, max_delta: float, workers: Workers) -> TableChanges:
    """Find the documents that changed since ``base`` was built; stop when they are too many for a delta shard."""
    table, base_parts = plan.snapshot, base.table_parts
    if base_parts == plan.table_parts:
        return TableChanges(base_parts)
    old = _open_base(base, table)
    parts = changed_parts(old, table) if old else []
    if old is None or any(table.store.entry(path) is None for part in parts for path in part.old_files):
        reason = f"the table no longer has version {base.table_version}, which the index was built from"
        return TableChanges(base_parts, unknown=reason)
    schema = row_schema(table, plan.properties.stored_fields)
    tasks = [(table.store, part, schema) for part in parts]
    rows: list[RowChange] = []
    left = max_delta * sum(shard.documents for shard in base.shards)
    for _, change in workers.run(changed_rows, tasks, size=sum(part.size for part in parts)):
        rows.append(change)
        left -= len(change.upserts) + len(change.deletes)
        if left < 0:
            return TableChanges(base_parts, unknown=f"more than index.max_delta={max_delta} of the documents changed")
    return TableChanges(base_parts, tuple(sorted(rows, key=lambda change: change.bucket)))


def reason_to_rebuild(base: IndexVersion, changes: TableChanges, rows: int, max_delta: float) -> str:
    """Return why all shards have to be built again, or "" if a delta shard can hold the changes."""
    if changes.unknown:
        return changes.unknown
    held = changes.upserts + sum(shard.documents for shard in base.shards)
    outside = changes.upserts + sum(shard.documents for shard in base.shards if shard.role == "delta")
    if held - rows + outside > max_delta * held:
        return f"delta shards and tombstones would hold more than index.max_delta={max_delta}"
    return ""


def _open_base(base: IndexVersion, table: Table) -> Table | None:
    """Return the table at the version that ``base`` was built from; None if that version is deleted or differs."""
    if base.table_version not in {entry.version for entry in table.log()}:
        return None
    old = open_table(table.store, base.table_version)
    return old if old is not None and index_plan.digest_parts(old) == base.table_parts else None


@dataclass(frozen=True, slots=True)
class DerivedVersion:
    """An index version and the work that made it."""

    version: IndexVersion  # written to the index, but not published
    base: IndexVersion | None  # the version that was current; None if there was none
    # ``full``: all shards were built from the table; ``delta``: one delta shard was added; ``merge``: one delta
    # shard was added that includes earlier delta shards; ``unchanged``: the version is the current one
    mode: Mode
    reason: str  # why all shards were built; "" in the other modes
    changes: TableChanges  # changes of the table since ``base``, as far as they were compared
    shards: tuple[BuiltShard, ...]  # the shards that were planned, including those that were already in the index


def derive_version(
    plan: index_plan.IndexPlan,
    settings: IndexSettings,
    index: Store,
    base: IndexVersion | None,
    workers: Workers,
    known: TableChanges | None = None,
) -> DerivedVersion:
    """Build the shards that the table's pinned version needs beyond the current version, and write the version."""
    takedowns = load_takedowns(index, base) if base else []
    changes, reason = TableChanges(), _reason_not_to_compare(plan, base) or _reason_not_to_keep(index, base)
    if base is not None and not reason:
        if known is None or known.base_parts != base.table_parts:
            known = compare_table(plan, base, settings.max_delta, workers)
        changes = known
        reason = reason_to_rebuild(base, changes, plan.documents, settings.max_delta)
    mode: Mode
    if base is None or reason:
        version, shards = _build_all(plan, index, base, takedowns, workers)
        mode, reason = ("unchanged", "") if version == base else ("full", reason)
    else:
        merged = delta.choose_merged(base.shards, changes.upserts, settings.max_delta_shards)
        if not changes.upserts and not changes.deletes and not merged:
            return DerivedVersion(base, base, "unchanged", "", changes, ())
        version, shards = _build_delta(plan, index, base, takedowns, changes, merged, workers)
        mode = "merge" if merged else "delta"
    _check_documents(plan, version, base, changes, mode)
    publish.write_version(index, version)
    return DerivedVersion(version, base, mode, reason, changes, shards)


def _reason_not_to_compare(plan: index_plan.IndexPlan, base: IndexVersion | None) -> str:
    """Return why no shard of the current version can be kept, or ""."""
    if base is None:
        return "no version of this format is published"
    properties, uri = plan.properties, plan.snapshot.store.location
    made_by = (base.bundle_digest, base.vocabulary_sha256, base.impact_step, base.table_uri)
    if made_by != (properties.bundle_digest, properties.vocabulary_sha256, properties.impact_step, uri):
        return "another table or bundle"
    return "" if base.layout == plan.layout_digest else "other settings of the shards"


def _reason_not_to_keep(index: Store, base: IndexVersion | None) -> str:
    """Return why the shards of the current version are not complete, or ""; files of a folder are not looked at."""
    if base is None or not is_remote(index.uri):
        return ""
    try:
        index_versions.check_files(index, base)
    except ArtifactError as error:
        log.warning("current version is incomplete", extra={"fields": {"reason": str(error)}})
        return "files of the current version are missing"
    return ""


def _build_all(
    plan: index_plan.IndexPlan, index: Store, base: IndexVersion | None, takedowns: list[str], workers: Workers
) -> tuple[IndexVersion, tuple[BuiltShard, ...]]:
    size = live_rows.total(plan.snapshot.file_table(), "size")
    built = dict(workers.run(_build_base, [(shard, index) for shard in plan.shards], size=size))
    shards = tuple(built[place] for place in range(len(plan.shards)))
    manifests = tuple(shard.manifest for shard in shards)
    table = plan.snapshot
    version = replace(
        index_plan.version_of(manifests, plan.properties, plan.layout, table.store.location, table.version),
        tombstones=hide_everywhere(index, manifests, [None] * len(manifests), as_ids(takedowns), workers),
        takedowns=base.takedowns if base else None,
        table_parts=plan.table_parts,
        layout=plan.layout_digest,
    )
    return version, shards


def _build_base(plan: index_plan.ShardPlan, index: Store) -> BuiltShard:
    return build_shard(plan, read_buckets(plan), index)


def _build_delta(
    plan: index_plan.IndexPlan,
    index: Store,
    base: IndexVersion,
    takedowns: list[str],
    changes: TableChanges,
    merged: tuple[int, ...],
    workers: Workers,
) -> tuple[IndexVersion, tuple[BuiltShard, ...]]:
    selections = delta.select_documents(plan, index, base, takedowns, changes.rows, merged, workers)
    size = sum(selection.size for selection in selections)
    digests = dict(workers.run(delta.digest_selection, [(selection,) for selection in selections], size=size))
    shard = delta.plan_delta(plan, selections, [digests[place] for place in range(len(selections))])
    tasks = [(shard, selections, index)] if shard.documents else []
    built = tuple(one for _, one in workers.run(delta.build_delta, tasks, size=size))

    ids = [*(change.deletes for change in changes.rows), *(selection.ids for selection in selections)]
    superseded = pa.chunked_array(ids, pa.large_string()).combine_chunks()
    shards = [shard for place, shard in enumerate(base.shards) if place not in merged]
    before = [tombstones for place, tombstones in enumerate(base.tombstones) if place not in merged]
    tombstones = hide_everywhere(index, shards, before, superseded, workers)
    new = [one.manifest for one in built]
    version = replace(
        base,
        shards=(*shards, *new),
        tombstones=(*tombstones, *hide_everywhere(index, new, [None] * len(new), as_ids(takedowns), workers)),
        table_version=plan.snapshot.version,
        table_parts=plan.table_parts,
    )
    return version, built


def _check_documents(
    plan: index_plan.IndexPlan, version: IndexVersion, base: IndexVersion | None, changes: TableChanges, mode: Mode
) -> None:
    """Check that the version holds the documents of the table, except those that are taken down."""
    rows, documents = plan.documents, version.documents
    taken_down = version.deleted  # shards that were just built have no other tombstones
    if base is not None and mode in ("delta", "merge"):
        before = rows - changes.upserts + sum(one.replaced for one in changes.rows) + changes.deletes
        new = [one for one in version.tombstones[len(version.tombstones) - 1 :] if one]
        taken_down = before - base.documents + sum(one.documents for one in new)
    if not rows - taken_down <= documents <= rows:
        raise PublicationError(f"the shards hold {documents} documents, but the table {rows}; build the index again")
