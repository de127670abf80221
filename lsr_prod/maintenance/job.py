"""The maintenance job: compact the sparse table, then vacuum it and its quarantine."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from lsr_prod.cluster import ray_session
from lsr_prod.config import Deployment, MaintainSettings
from lsr_prod.errors import ConfigError, FormatVersionError
from lsr_prod.formats.table import TableProperties
from lsr_prod.maintenance.compact import Merge, compact, merge_parts
from lsr_prod.maintenance.summaries import MaintenanceSummary
from lsr_prod.maintenance.vacuum import vacuum
from lsr_prod.storage import Store, is_remote
from lsr_prod.storage.index_versions import read_version
from lsr_prod.storage.location import same_location
from lsr_prod.storage.publications import publication_numbers, read_publication
from lsr_prod.tables import Part, open_table

__all__ = ["maintain", "versions_of_indexes"]


def maintain(deployment: Deployment) -> MaintenanceSummary:
    """Compact and vacuum a table; encode jobs may run at the same time. A repeated run finds nothing to do.

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
    table = Store(_absolute(settings.table), deployment.storage.options)
    quarantine = Store(
        _absolute(settings.quarantine or f"{settings.table.rstrip('/')}_quarantine"), deployment.storage.options
    )
    newest = _check(table, settings)
    if (asked := max(settings.keep_versions, default=0)) > newest:
        raise ConfigError(
            "maintain.keep_versions", f"the table has no version {asked}", f"keep versions up to {newest}"
        )
    named = versions_of_indexes(table, settings.indexes)
    if (last := max(named, default=0)) > newest:
        raise ConfigError(
            "maintain.indexes",
            f"an index was built from version {last} of {table.uri}, which has {newest} as its newest version",
            "name indexes of this table",
        )
    keep = sorted({*settings.keep_versions, *named})
    compaction = None
    if settings.compact and not settings.dry_run:
        with ray_session(deployment.ray):
            compaction = compact(table, settings.target_megabytes * 1_000_000, run=_on_ray)
    retention = settings.retention_hours * 3600
    found = []
    if open_table(quarantine) is not None:  # first: the markers that name its parts are in the other folder
        found.append((quarantine, vacuum(quarantine, retention, markers_of=table, dry_run=settings.dry_run)))
    found.append((table, vacuum(table, retention, keep_versions=keep, dry_run=settings.dry_run)))
    return MaintenanceSummary(
        compaction=compaction,
        garbage=tuple(f"{store.uri}/{entry.name}" for store, one in found for entry in one.entries),
        bytes_garbage=sum(one.size for _, one in found),
        versions_kept=tuple(keep),
        dry_run=settings.dry_run,
        seconds=time.monotonic() - started,
    )


def versions_of_indexes(table: Store, indexes: Sequence[str]) -> set[int]:
    """Return the versions of the table that publications of the given indexes use.

    Args:
        table: the table's folder.
        indexes: folders or URIs of indexes.

    Raises:
        ConfigError: a folder is not an index, or its publications use no version of the table.
        ArtifactError: a published version is damaged.
    """
    return {version for place in indexes for version in _versions_of_index(table, Store(place, table.options))}


def _versions_of_index(table: Store, index: Store) -> set[int]:
    numbers = publication_numbers(index)
    if not numbers:
        raise ConfigError("maintain.indexes", f"{index.uri} has no publication", "name folders of published indexes")
    published = {read_publication(index, number).version for number in numbers}
    found = [read_version(index, sha) for sha in sorted(published)]
    versions = {version.table_version for version in found if same_location(version.table_uri, table.location)}
    if not versions:  # nothing of the table would be protected, although that is what the setting is for
        raise ConfigError(
            "maintain.indexes",
            f"{index.uri} was built from {', '.join(sorted({version.table_uri for version in found}))}, "
            f"not from {table.uri}",
            "name indexes of this table, and the table as it was named when they were built",
        )
    return versions


def _check(table: Store, settings: MaintainSettings) -> int:
    found = open_table(table)
    if found is None:
        raise ConfigError(
            "maintain.table", f"{settings.table} is not a table", "set it to a table that lsr-prod encode wrote"
        )
    try:
        TableProperties.from_delta(dict(found.properties))
    except FormatVersionError as error:
        raise ConfigError("maintain.table", str(error), "maintain only tables of this release") from error
    return found.version


def _on_ray(store: Store, merges: Sequence[Merge]) -> Iterator[tuple[Merge, Part]]:
    from lsr_prod.cluster.tasks import run_tasks  # imports Ray

    for number, part in run_tasks(merge_parts, [(store, merge) for merge in merges], task="merging small parts"):
        yield merges[number], part


def _absolute(uri: str) -> str:
    return uri if is_remote(uri) else str(Path(uri).absolute())
