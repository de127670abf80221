"""The maintenance job: compact the sparse table and its quarantine, then delete what nothing needs."""

import math
import time
from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from lsr_prod.cluster import ray_session
from lsr_prod.config import Deployment, MaintainSettings
from lsr_prod.config.section import quarantine_uri
from lsr_prod.encoding.commit.committer import waves_done
from lsr_prod.encoding.plans.successors import plan_chain, read_record
from lsr_prod.encoding.tables import Part, Table, live_rows, load_table, open_table, sparse_table
from lsr_prod.errors import ConfigError, FormatVersionError
from lsr_prod.logs import get_log
from lsr_prod.operations.maintenance.compact import (
    CompactionSummary,
    MaintenanceSummary,
    Merge,
    Merger,
    compact,
    merge_parts,
)
from lsr_prod.operations.maintenance.vacuum import paths_in_markers, shorten_chain, vacuum
from lsr_prod.storage import Store, index_versions, location, publications
from lsr_prod.storage.folders import absolute

log = get_log(__name__)


def maintain(deployment: Deployment) -> MaintenanceSummary:
    """Compact and vacuum a table and its quarantine; encode jobs may run at the same time.

    A repeated run finds nothing to do.

    The digest of the table does not change.

    Args:
        deployment: sections ``maintain``, ``storage`` and ``ray``.

    Raises:
        ConfigError: a setting names nothing that exists; nothing was written.
        ArtifactError: a version to keep or a published index cannot be read; nothing was deleted.
    """
    started = time.monotonic()
    settings = deployment.maintain
    assert settings is not None  # the job demanded the section
    table = Store(absolute(settings.table), deployment.storage.options)
    quarantine = Store(absolute(quarantine_uri(settings.quarantine, settings.table)), deployment.storage.options)
    keep = _versions_to_keep(table, settings)
    has_quarantine = is_quarantine(open_table(quarantine))
    compaction, bad_rows = _compact(deployment, table, quarantine if has_quarantine else None)
    retention = settings.retention_hours * 3600
    marked = paths_in_markers(table)  # before any of them is deleted
    found = [("", table, vacuum(table, retention, keep_versions=keep, marked=marked, dry_run=settings.dry_run))]
    if has_quarantine:
        garbage = vacuum(quarantine, retention, marked=marked, dry_run=settings.dry_run)
        found.append(("quarantine_", quarantine, garbage))
    if not settings.dry_run:
        shorten_chain(load_table(table))
    return MaintenanceSummary(
        compaction=compaction,
        quarantine=bad_rows,
        garbage=tuple(f"{store.uri}/{entry.name}" for _, store, one in found for entry in one.entries),
        kinds={f"{prefix}{kind}": number for prefix, _, one in found for kind, number in one.counts().items()},
        bytes_garbage=sum(one.size for _, _, one in found),
        versions_kept=tuple(keep),
        dry_run=settings.dry_run,
        seconds=time.monotonic() - started,
    )


def _compact(
    deployment: Deployment, table: Store, quarantine: Store | None
) -> tuple[CompactionSummary | None, CompactionSummary | None]:
    settings = deployment.maintain
    assert settings is not None
    target = settings.target_megabytes * 1_000_000

    def compact_both(run: Merger | None) -> tuple[CompactionSummary, CompactionSummary | None]:
        documents = compact(table, target, run=run, purge=settings.purge, dry_run=settings.dry_run)
        if quarantine is None:
            return documents, None
        return documents, compact_quarantine(quarantine, table, target, run=run, dry_run=settings.dry_run)

    if not settings.compact:
        return None, None
    if settings.dry_run:
        return compact_both(None)
    with ray_session(deployment.ray):
        return compact_both(_on_ray)


def _versions_to_keep(table: Store, settings: MaintainSettings) -> list[int]:
    """Return the versions that are kept at any age."""
    newest, logged = _check(table, settings)
    for asked in settings.keep_versions:
        if asked > newest:
            problem = f"the table has no version {asked}"
            raise ConfigError("maintain.keep_versions", problem, f"keep versions up to {newest}")
        if asked not in logged:
            problem = f"version {asked} of the table was deleted by an earlier run"
            raise ConfigError("maintain.keep_versions", problem, f"keep versions from {min(logged)} on")
    named = versions_of_indexes(table, settings.indexes)
    if (last := max(named, default=0)) > newest:
        problem = f"an index was built from version {last} of {table.uri}, which has {newest} as its newest version"
        raise ConfigError("maintain.indexes", problem, "name indexes of this table")
    if lost := named - logged:
        fields = {"table": table.uri, "versions": sorted(lost)}
        log.warning("published versions of the table are no longer in its log", extra={"fields": fields})
    return sorted({*settings.keep_versions, *(named & logged)})


def versions_of_indexes(table: Store, indexes: Sequence[str]) -> set[int]:
    """Return the versions of the table that publications of the given indexes use."""
    return {version for place in indexes for version in _versions_of_index(table, Store(place, table.options))}


def _versions_of_index(table: Store, index: Store) -> set[int]:
    numbers = publications.publication_numbers(index)
    if not numbers:
        raise ConfigError("maintain.indexes", f"{index.uri} has no publication", "name folders of published indexes")
    published = {publications.read_publication(index, number).version for number in numbers}
    found = [index_versions.read_version(index, sha) for sha in sorted(published)]
    versions = {version.table_version for version in found if location.same_location(version.table_uri, table.location)}
    if not versions:  # nothing of the table would be protected, although that is what the setting is for
        raise ConfigError(
            "maintain.indexes",
            f"{index.uri} was built from {', '.join(sorted({version.table_uri for version in found}))}, "
            f"not from {table.uri}",
            "name indexes of this table, and the table as it was named when they were built",
        )
    return versions


def _check(table: Store, settings: MaintainSettings) -> tuple[int, set[int]]:
    """Return the newest version of the table, and all versions in its log."""
    found = open_table(table)
    if found is None:
        problem = f"{settings.table} is not a table"
        raise ConfigError("maintain.table", problem, "set it to a table that lsr-prod encode wrote")
    try:
        _ = found.sparse_properties
    except FormatVersionError as error:
        raise ConfigError("maintain.table", str(error), "maintain only tables of this release") from error
    return found.version, {entry.version for entry in found.log()}


def _on_ray(store: Store, merges: Sequence[Merge]) -> Iterator[tuple[Merge, Part | None]]:
    from lsr_prod.cluster.tasks import run_tasks  # imports Ray

    for number, part in run_tasks(merge_parts, [(store, merge) for merge in merges], task="merging small parts"):
        yield merges[number], part


# Merge the small parts of the quarantine: every cell with bad rows has written one.
#
# Only waves that the sparse table has are merged: an attempt may still replace the bad rows of another wave. The newest
# plan is left alone until it is finished, because its later cells name the parts of its earlier waves.

_ORDER = ("source", "position")
_PLAN, _WAVE = live_rows.partition_column("plan"), live_rows.partition_column("wave")


def is_quarantine(table: Table | None) -> bool:
    """Return whether a table is the quarantine of an encode job."""
    return table is not None and "plan" in table.partition_by


def compact_quarantine(
    quarantine: Store, table: Store, target_bytes: int, *, run: Merger | None = None, dry_run: bool = False
) -> CompactionSummary:
    """Merge the small parts of each committed wave; see ``compact``.

    Args:
        quarantine: folder of the quarantine.
        table: folder of the sparse table.
        target_bytes: size of a merged part.
        run: makes the merged parts.
        dry_run: count the merges, but write nothing.

    Raises:
        ArtifactError: there is no table, or a part is damaged.
        CommitError: other writers committed first, too many times.
    """
    sparse = load_table(table)
    busy = _unfinished_plan(sparse)

    def of_committed_waves(found: Table) -> pa.Table:
        files = found.file_table()
        plans = pc.unique(files[_PLAN]).to_pylist()
        done = pa.array([0 if plan == busy else waves_done(sparse, plan) for plan in plans], pa.int64())
        of_file = done.take(pc.index_in(files[_PLAN], value_set=pa.array(plans, files.schema.field(_PLAN).type)))
        return files.filter(pc.less(files[_WAVE].cast(pa.int64()), of_file))

    return compact(quarantine, target_bytes, run=run, files=of_committed_waves, order=_ORDER, dry_run=dry_run)


def _unfinished_plan(table: Table) -> str | None:
    """Return the newest plan of a sparse table, if it has waves left."""
    root = table.properties.get(sparse_table.PLAN_PROPERTY)
    if root is None:
        return None
    newest = plan_chain(table.store, root, partial(waves_done, table))[-1]
    record = read_record(table.store, newest)
    return newest if record is not None and waves_done(table, newest) < record.get("waves", math.inf) else None
