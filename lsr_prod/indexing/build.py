"""The index job: plan, build shards, write the next version, publish it."""

import time
from collections.abc import Sequence
from functools import partial

from lsr_prod.cluster.workers import Workers
from lsr_prod.config import Deployment
from lsr_prod.indexing.build_records import save_build
from lsr_prod.indexing.derive import DerivedVersion, derive_version
from lsr_prod.indexing.gates import Inspect
from lsr_prod.indexing.on_nodes import require_on_nodes
from lsr_prod.indexing.plan import plan_index
from lsr_prod.indexing.publish import Publisher, read_current_version
from lsr_prod.indexing.summaries import IndexSummary
from lsr_prod.logs import get_log
from lsr_prod.storage import Store
from lsr_prod.storage.folders import absolute
from lsr_prod.storage.index_shards import add_bundle

log = get_log(__name__)


def build_index(deployment: Deployment, inspect: Inspect | None = None) -> IndexSummary:
    """Bring an index to the pinned version of its sparse table and publish it; a repeated run changes nothing.

    If ``index.max_delta`` allows it, the shards of the current version stay, and one delta shard and tombstones are
    added; otherwise all shards are built. Ray is started only if there is much to read.

    Args:
        deployment: sections ``index``, ``storage`` and ``ray``. All nodes have to see a local output folder.
        inspect: gates before the publication (``operations.gates``); None: there are none.

    Raises:
        ConfigError: a setting names nothing that exists or does not fit the table; nothing was written.
        LineageError: another bundle made the table; nothing was written.
        ArtifactError: the table or a finished shard is damaged.
        PublicationError: a gate rejects the version.
        StorageError: the disk or the object store fails.
    """
    started = time.perf_counter()
    settings = deployment.index
    assert settings is not None  # the job demanded the section
    plan = plan_index(deployment)
    index = Store(absolute(settings.output), deployment.storage.options)
    add_bundle(index, plan.bundle)
    attempts: list[DerivedVersion] = []
    publisher, publication = Publisher(index, inspect=inspect), None
    with Workers(deployment.ray, check=partial(require_on_nodes, plan.snapshot, settings.output)) as workers:
        while publication is None:
            current = read_current_version(index)
            before = current.number
            known = attempts[-1].changes if attempts else None
            derived = derive_version(plan, settings, index, current.version, workers, known)
            attempts.append(derived)
            log.info("version derived", extra={"fields": {"mode": derived.mode, "reason": derived.reason}})
            if not settings.publish:
                break
            publication = publisher.publish_next(current, derived.version)
    summary = _summarize(attempts, time.perf_counter() - started, publication.number if publication else 0)
    if summary.documents_rebuilt or summary.publication > before:
        shards = [shard for attempt in attempts for shard in attempt.shards]
        save_build(index, summary, shards, publication.report if publication else "")
    return summary


def _summarize(attempts: Sequence[DerivedVersion], seconds: float, publication: int) -> IndexSummary:
    """Summarize the final attempt, with the bytes and documents that all attempts wrote."""
    last = attempts[-1]
    version = last.version

    def bytes_per_doc(*parts: str) -> float:
        total = sum(shard.bytes_by_part[part] for shard in version.shards for part in parts)
        return round(total / max(1, version.documents), 1)

    built = [shard for attempt in attempts for shard in attempt.shards if not shard.reused]
    new = {shard.manifest.sha for shard in built}
    return IndexSummary(
        documents=version.documents,
        shards=len(version.shards),
        shards_reused=sum(shard.sha not in new for shard in version.shards),
        postings=sum(shard.postings for shard in version.shards),
        bytes_per_doc=bytes_per_doc("impacts", "forward", "tantivy", "docs"),
        bytes_per_doc_impacts=bytes_per_doc("impacts"),
        bytes_per_doc_forward=bytes_per_doc("forward"),
        bytes_per_doc_tantivy=bytes_per_doc("tantivy"),
        bytes_per_doc_docs=bytes_per_doc("docs"),
        mode=last.mode,
        reason=last.reason,
        upserts=last.changes.upserts,
        deletes=last.changes.deletes,
        tombstones=version.deleted,
        documents_rebuilt=sum(shard.manifest.documents for shard in built),
        bytes_written=sum(file.size for shard in built for file in shard.manifest.files) + _tombstone_bytes(attempts),
        unreadable_attributes=sum(shard.unreadable_attributes for shard in built),
        seconds=round(seconds, 3),
        seconds_impacts=round(sum(shard.seconds_impacts for shard in built), 3),
        seconds_tantivy=round(sum(shard.seconds_tantivy for shard in built), 3),
        version=version.sha,
        publication=publication,
    )


def _tombstone_bytes(attempts: Sequence[DerivedVersion]) -> int:
    sizes: dict[str, int] = {}
    for attempt in attempts:
        before = {one.file.path for one in attempt.base.tombstones if one} if attempt.base else set()
        files = [one.file for one in attempt.version.tombstones if one]
        sizes |= {file.path: file.size for file in files if file.path not in before}
    return sum(sizes.values())
