"""The maintenance job: compact the sparse table, then vacuum it and its quarantine."""

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lsr_prod.cluster import ray_session
from lsr_prod.config import Deployment, MaintainSettings
from lsr_prod.errors import ConfigError, FormatVersionError, LsrError
from lsr_prod.formats.index import load_publication, load_version
from lsr_prod.formats.table import TableProperties
from lsr_prod.maintenance.compact import Compaction, Merge, compact, merge_parts
from lsr_prod.maintenance.vacuum import vacuum
from lsr_prod.storage import Store, is_remote
from lsr_prod.tables import Part, open_table

__all__ = ["maintain", "versions_of_indexes"]


def maintain(deployment: Deployment) -> Mapping[str, Any]:
    """Compact and vacuum a table, beside running encode jobs. Run again, it finds nothing to do.

    Args:
        deployment: sections ``maintain``, ``storage`` and ``ray``.

    Returns:
        A flat summary: parts before and after, files and bytes that were deleted (or would be), versions kept. The
        digest of the table is the same before and after.

    Raises:
        ConfigError: a setting points nowhere; nothing was written.
        ArtifactError: a version that is to be kept, or a published index, cannot be read; nothing was deleted.
    """
    started = time.monotonic()
    settings = deployment.maintain
    assert settings is not None  # the job demanded the section
    table = Store(_absolute(settings.table), deployment.storage.options)
    quarantine = Store(
        _absolute(settings.quarantine or f"{settings.table.rstrip('/')}_quarantine"), deployment.storage.options
    )
    newest = _check(table, settings)
    keep = sorted({*settings.keep_versions, *versions_of_indexes(table, settings.indexes)})
    if keep and keep[-1] > newest:
        raise ConfigError("maintain.keep_versions", f"the table has no version {keep[-1]}", f"its newest is {newest}")
    compaction = None
    if settings.compact and not settings.dry_run:
        with ray_session(deployment.ray):
            compaction = compact(table, settings.target_megabytes * 1_000_000, run=_on_ray)
    retention = settings.retention_hours * 3600
    found = []
    if open_table(quarantine) is not None:  # first: the markers that name its parts lie in the other folder
        found.append((quarantine, vacuum(quarantine, retention, markers_of=table, dry_run=settings.dry_run)))
    found.append((table, vacuum(table, retention, keep_versions=keep, dry_run=settings.dry_run)))
    names = [f"{store.uri}/{entry.name}" for store, one in found for entry in one.entries]
    return {
        **_counts(compaction),
        "files_deleted": 0 if settings.dry_run else len(names),
        "files_garbage": len(names),
        "bytes_garbage": sum(one.size for _, one in found),
        "versions_kept": keep,
        "dry_run": settings.dry_run,
        "seconds": time.monotonic() - started,
        **({"garbage": names} if settings.dry_run else {}),
    }


def versions_of_indexes(table: Store, indexes: Sequence[str]) -> set[int]:
    """Versions of the table that the publications of these indexes name.

    Args:
        table: the table's folder.
        indexes: index folders.

    Raises:
        ConfigError: a folder is no index.
        ArtifactError: a published version is damaged.
    """
    versions = set()
    for place in indexes:
        index = Path(place)
        numbers = sorted(int(path.stem) for path in (index / "publications").glob("*.json") if path.stem.isdigit())
        if not numbers:
            raise ConfigError("maintain.indexes", f"{place} has no publication", "give folders of published indexes")
        published = {load_publication(index, number).version for number in numbers}
        found = [load_version(index, sha) for sha in sorted(published)]
        versions |= {version.table_version for version in found if version.table_uri == table.location}
    return versions


def _check(table: Store, settings: MaintainSettings) -> int:
    found = open_table(table)
    if found is None:
        raise ConfigError("maintain.table", f"{settings.table} is no table", "give what jobs/encode.py wrote")
    try:
        TableProperties.from_delta(dict(found.properties))
    except FormatVersionError as error:
        raise ConfigError("maintain.table", str(error), "maintenance is for tables of this release") from error
    return found.version


def _on_ray(store: Store, merges: Sequence[Merge]) -> Iterator[tuple[Merge, Part]]:
    import ray
    from ray.exceptions import RayTaskError

    task = ray.remote(num_cpus=1)(merge_parts)
    running = {task.remote(store, merge): merge for merge in merges}
    while running:
        (done,), _ = ray.wait(list(running), num_returns=1)
        try:
            yield running.pop(done), ray.get(done)
        except RayTaskError as error:
            if isinstance(error.cause, LsrError):
                raise error.cause from error
            raise


def _counts(compaction: Compaction | None) -> dict[str, int]:
    if compaction is None:
        return {}
    return {
        "parts_before": compaction.parts_before,
        "parts_after": compaction.parts_after,
        "parts_merged": compaction.merged,
        "merges_skipped": compaction.skipped,
        "commits": compaction.commits,
    }


def _absolute(uri: str) -> str:
    return uri if is_remote(uri) else str(Path(uri).absolute())
