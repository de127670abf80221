"""The index job: one Ray task a shard, then a version, then its publication."""

import logging
import shutil
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lsr_prod.cluster import ray_session
from lsr_prod.config import Deployment
from lsr_prod.errors import LsrError, PublicationError
from lsr_prod.formats.bundle import BUNDLE_FILE, Bundle
from lsr_prod.formats.digest import canonical_json
from lsr_prod.formats.index import IndexVersion
from lsr_prod.indexing.plan import IndexPlan, ShardPlan, plan_index
from lsr_prod.indexing.publish import publish
from lsr_prod.indexing.rows import read_buckets
from lsr_prod.indexing.shard import BuiltShard, build_shard, sync_tree
from lsr_prod.storage import Store

__all__ = ["build_index"]

log = logging.getLogger(__name__)


def build_index(deployment: Deployment) -> Mapping[str, Any]:
    """Build the index of a sparse table's pinned version, and publish it. Run again, it ends in the same state.

    Args:
        deployment: sections ``index``, ``storage`` and ``ray``. The output folder is one that all workers see.

    Returns:
        documents, shards, shards_reused, postings, bytes_per_doc and its parts (_impacts, _forward, _tantivy, _docs),
        unreadable_attributes (values that became null), seconds (wall), seconds_impacts and seconds_tantivy (summed
        over shards), version, publication (0: none).

    Raises:
        ConfigError: a setting points nowhere or does not fit the table; nothing was written.
        LineageError: the bundle did not make the table; nothing was written.
        ArtefactError: the table or a finished shard is damaged.
        PublicationError: a gate refuses the version.
    """
    start = time.perf_counter()
    settings = deployment.index
    assert settings is not None  # the job demanded the section
    plan = plan_index(deployment)
    index = Path(settings.output).absolute()
    _copy_bundle(plan.bundle, index / "bundles" / plan.properties.bundle_digest)
    with ray_session(deployment.ray):
        built = _build_shards(plan.shards, index)
    version = _write_version(plan, built, index)
    publication = publish(index, version.sha, max_shrink=settings.max_shrink).number if settings.publish else 0
    return _summary(version, built, time.perf_counter() - start, publication)


def _build_shards(plans: tuple[ShardPlan, ...], index: Path) -> list[BuiltShard]:
    import ray
    from ray.exceptions import RayTaskError

    task = ray.remote(num_cpus=1)(_build_one)
    pending = [task.remote(plan, index) for plan in plans]
    results = list(pending)
    while pending:
        done, pending = ray.wait(pending)
        try:
            ray.get(done)
        except RayTaskError as error:
            if isinstance(error.cause, LsrError):
                raise error.cause from error
            raise
        log.info("shards", extra={"fields": {"done": len(plans) - len(pending), "of": len(plans)}})
    built: list[BuiltShard] = ray.get(results)
    return built


def _build_one(plan: ShardPlan, index: Path) -> BuiltShard:
    return build_shard(plan, read_buckets(plan), index)


def _copy_bundle(source: Path, target: Path) -> None:
    """Put the bundle into the index, whole or not at all."""
    if target.is_dir():
        Bundle.load(target, verify=True)
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


def _write_version(plan: IndexPlan, built: list[BuiltShard], index: Path) -> IndexVersion:
    version = IndexVersion(
        shards=tuple(shard.manifest for shard in built),
        bundle_digest=plan.properties.bundle_digest,
        vocabulary_sha256=plan.properties.vocabulary_sha256,
        impact_step=plan.properties.impact_step,
        dk=plan.layout.dk,
        table_uri=plan.table,
        table_version=plan.table_version,
        stored_fields=plan.layout.stored_fields,
        text_fields=plan.layout.text_fields,
        attributes=dict(plan.layout.attributes),
        average_length=plan.layout.average_length,
    )
    rows = sum(shard.documents for shard in plan.shards)
    if version.documents != rows:
        raise PublicationError(f"the shards hold {version.documents} documents, the table {rows}; build again")
    Store(str(index)).put_new(f"versions/{version.sha}.json", canonical_json(version.to_json()) + b"\n")
    return version


def _summary(version: IndexVersion, built: list[BuiltShard], seconds: float, publication: int) -> dict[str, Any]:
    def bytes_per_doc(*parts: str) -> float:
        total = sum(shard.bytes_by_part[part] for shard in version.shards for part in parts)
        return round(total / max(1, version.documents), 1)

    parts = ("impacts", "forward", "tantivy", "docs")
    return {
        "documents": version.documents,
        "shards": len(version.shards),
        "shards_reused": sum(shard.reused for shard in built),
        "postings": sum(shard.postings for shard in version.shards),
        "bytes_per_doc": bytes_per_doc(*parts),
        **{f"bytes_per_doc_{part}": bytes_per_doc(part) for part in parts},
        "seconds": round(seconds, 3),
        "seconds_impacts": round(sum(shard.seconds_impacts for shard in built), 3),
        "unreadable_attributes": sum(shard.unreadable_attributes for shard in built),
        "seconds_tantivy": round(sum(shard.seconds_tantivy for shard in built), 3),
        "version": version.sha,
        "publication": publication,
    }
