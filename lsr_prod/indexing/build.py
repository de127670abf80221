"""The index job: the next version, from the current one where that is cheaper, and its publication."""

import logging
import os
import shutil
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lsr_prod.config import Deployment
from lsr_prod.formats.bundle import BUNDLE_FILE, Bundle
from lsr_prod.formats.index import IndexVersion
from lsr_prod.indexing.derive import Derived, Deriver
from lsr_prod.indexing.mirror import adopt_head, mirror_head
from lsr_prod.indexing.plan import plan_index
from lsr_prod.indexing.publish import Head, publish_derived, read_head
from lsr_prod.indexing.shard import sync_tree
from lsr_prod.indexing.workers import Workers
from lsr_prod.storage import Store

__all__ = ["build_index"]

log = logging.getLogger(__name__)


def build_index(deployment: Deployment) -> Mapping[str, Any]:
    """Bring an index to a sparse table's pinned version, and publish it. Run again, it ends in the same state.

    The current version's shards stay, and one delta shard and tombstones are added, as long as ``index.max_delta``
    allows; else all shards are built. Ray is started only if there is much to read.

    Args:
        deployment: sections ``index``, ``storage`` and ``ray``. The output folder is one that all workers see.

    Returns:
        documents, shards, shards_reused, postings, bytes_per_doc and its parts (_impacts, _forward, _tantivy, _docs),
        mode (full, delta, merge, unchanged), reason (why full), upserts, deletes, tombstones (documents of shards that
        are hidden), documents_rebuilt and bytes_written by this run, unreadable_attributes (values that became null in
        what it built), seconds (wall), seconds_impacts and seconds_tantivy (summed over shards), version, publication
        (0: none).

    Raises:
        ConfigError: a setting points nowhere or does not fit the table; nothing was written.
        LineageError: the bundle did not make the table; nothing was written.
        ArtifactError: the table or a finished shard is damaged.
        PublicationError: a gate refuses the version, or ``index.publish_to`` follows another index.
        StorageError: ``index.publish_to`` cannot be reached or fails.
    """
    start = time.perf_counter()
    settings = deployment.index
    assert settings is not None  # the job demanded the section
    plan = plan_index(deployment)
    index = Path(settings.output).absolute()
    target = Store(settings.publish_to, deployment.storage.options) if settings.publish_to else None
    if target is not None:  # a place that cannot be reached is refused before hours of work
        adopt_head(index, target)
    _copy_bundle(plan.bundle, index / "bundles" / plan.properties.bundle_digest)
    tried: list[tuple[Head, Derived]] = []
    with Workers(deployment.ray) as workers:
        deriver = Deriver(plan, settings, index, workers)

        def derive(head: Head) -> IndexVersion:
            derived = deriver.derive(head.version)
            tried.append((head, derived))
            log.info("derived", extra={"fields": {"mode": derived.mode, "reason": derived.reason}})
            return derived.version

        if settings.publish:
            publication = publish_derived(index, derive, max_shrink=settings.max_shrink).number
        else:
            derive(read_head(index))
            publication = 0
    if settings.publish and target is not None:
        mirror_head(index, target)
    return _summary(tried, time.perf_counter() - start, publication)


def _copy_bundle(source: Path, target: Path) -> None:
    """Put the bundle into the index, whole or not at all."""
    if target.is_dir():
        Bundle.load(target, verify=True)
        os.utime(target / BUNDLE_FILE)  # used again: no garbage
        return
    draft = target.parent / f".{target.name}.{uuid.uuid4().hex}.tmp"
    try:
        draft.mkdir(parents=True)
        # Only what the manifest names: whatever else lies in the folder is no part of the digest.
        for name in [BUNDLE_FILE, *(file.path for file in Bundle.load(source).files)]:
            (draft / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / name, draft / name)
        Bundle.load(draft, verify=True)
        sync_tree(draft)
        try:
            draft.rename(target)
        except OSError:
            if not target.is_dir():
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _summary(tried: Sequence[tuple[Head, Derived]], seconds: float, publication: int) -> dict[str, Any]:
    """Of the last try; what was written, of all of them."""
    last = tried[-1][1]
    version = last.version

    def bytes_per_doc(*parts: str) -> float:
        total = sum(shard.bytes_by_part[part] for shard in version.shards for part in parts)
        return round(total / max(1, version.documents), 1)

    parts = ("impacts", "forward", "tantivy", "docs")
    built = [shard for _, derived in tried for shard in derived.built if not shard.reused]
    new = {shard.manifest.sha for shard in built}
    return {
        "documents": version.documents,
        "shards": len(version.shards),
        "shards_reused": sum(shard.sha not in new for shard in version.shards),
        "postings": sum(shard.postings for shard in version.shards),
        "bytes_per_doc": bytes_per_doc(*parts),
        **{f"bytes_per_doc_{part}": bytes_per_doc(part) for part in parts},
        "mode": last.mode,
        "reason": last.reason,
        "upserts": last.upserts,
        "deletes": last.deletes,
        "tombstones": version.deleted,
        "documents_rebuilt": sum(shard.manifest.documents for shard in built),
        "bytes_written": sum(file.size for shard in built for file in shard.manifest.files) + _tombstone_bytes(tried),
        "unreadable_attributes": sum(shard.unreadable_attributes for shard in built),
        "seconds": round(seconds, 3),
        "seconds_impacts": round(sum(shard.seconds_impacts for shard in built), 3),
        "seconds_tantivy": round(sum(shard.seconds_tantivy for shard in built), 3),
        "version": version.sha,
        "publication": publication,
    }


def _tombstone_bytes(tried: Sequence[tuple[Head, Derived]]) -> int:
    sizes: dict[str, int] = {}
    for head, derived in tried:
        there = {one.file.path for one in head.version.tombstones if one} if head.version else set()
        files = [one.file for one in derived.version.tombstones if one]
        sizes |= {file.path: file.size for file in files if file.path not in there}
    return sum(sizes.values())
