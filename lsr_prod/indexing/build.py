"""The index job: plan, build shards, write the next version, publish it.

Records of finished index builds in their index: ``builds/<finished>.json``. They are never changed.

They serve pages and people only: no build depends on them. A run that neither built a shard nor published leaves none.
"""

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from lsr_prod import errors, logs
from lsr_prod.cluster.workers import Workers, has_several_nodes, require_files, require_shared_folders
from lsr_prod.config import Deployment
from lsr_prod.encoding.tables import Table
from lsr_prod.indexing import base_shard, derive, index_plan, publish
from lsr_prod.storage import Store, folders, in_threads, index_shards, is_remote
from lsr_prod.storage.formats.digests import parsing, record_bytes

log = logs.get_log(__name__)
BUILDS_FOLDER = "builds"
_FORMAT = 1
_PARTS = ("impacts", "forward", "tantivy", "docs")
_TIME = "%Y%m%dT%H%M%S%fZ"
_NAME = re.compile(rf"{BUILDS_FOLDER}/\d{{8}}T\d{{12}}Z\.json")


@dataclass(frozen=True, slots=True)
class IndexSummary:
    """Summary of an index job."""

    documents: int  # documents that can be found
    shards: int  # shards of the version
    shards_reused: int  # shards that this run did not build
    postings: int  # postings of all shards
    bytes_per_doc: float  # bytes of all shards per document
    bytes_per_doc_impacts: float  # of these, the posting arrays
    bytes_per_doc_forward: float  # of these, the document-ordered arrays
    bytes_per_doc_tantivy: float  # of these, the Tantivy index
    bytes_per_doc_docs: float  # of these, ids, stored fields and attributes
    mode: str  # ``full``, ``delta``, ``merge`` or ``unchanged``; see ``derive.DerivedVersion``
    reason: str  # why all shards were built; "" in the other modes
    upserts: int  # documents that are new or changed since the version that was current
    deletes: int  # documents that were deleted since then
    tombstones: int  # documents of the shards that are hidden
    documents_rebuilt: int  # documents of the shards that this run built, in all attempts
    bytes_written: int  # bytes of shards and tombstones that this run wrote, in all attempts
    unreadable_attributes: int  # values that became null in the shards that this run built
    seconds: float  # wall time
    seconds_impacts: float  # spent on document order and arrays, summed over shards
    seconds_tantivy: float  # spent on Tantivy indexes, summed over shards
    version: str  # sha256 of the version
    publication: int  # number of the publication; 0 if the version was not published

    def result(self) -> dict[str, Any]:
        """Return the flat summary of a job."""
        return asdict(self)


def require_on_nodes(table: Table, output: str) -> None:
    """Refuse a local table or output folder that some node does not see."""
    if not has_several_nodes():
        return
    if not is_remote(table.store.uri):
        require_files("index.table", _files(table))
    require_shared_folders({"index.output": output})


def _files(table: Table) -> Sequence[tuple[str, int]]:
    folder = Path(table.store.uri).absolute()
    return [(str(folder / file.path), file.size) for file in table.files()]


@dataclass(frozen=True, slots=True)
class BuildRecord:
    """Record of a finished build."""

    finished_at: str  # UTC, ISO 8601
    report: str  # sha256 of the report of the gates; "": there is none
    summary: Mapping[str, Any]  # the fields of ``IndexSummary``
    # per shard that the build planned: ``sha``, ``role``, ``documents``, ``postings``, ``bytes``, ``reused``,
    # ``seconds_impacts`` and ``seconds_tantivy``
    shards: Sequence[Mapping[str, Any]]


def save_build(index: Store, summary: IndexSummary, shards: Sequence[base_shard.BuiltShard], report: str) -> None:
    """Write the record of a build; a failure is logged, as the version is written already."""
    now = datetime.now(UTC)
    rows = {shard.manifest.sha: _row(shard) for shard in shards}
    record = BuildRecord(now.isoformat(timespec="seconds"), report, summary.result(), list(rows.values()))
    try:
        index.put_new(
            f"{BUILDS_FOLDER}/{now.strftime(_TIME)}.json", record_bytes({"format": _FORMAT, **asdict(record)})
        )
    except errors.StorageError as error:
        log.warning("record of the build not written", extra={"fields": {"error": str(error)}})


def read_builds(index: Store, *, last: int) -> list[BuildRecord]:
    """Return the newest records of builds, oldest first; builds of earlier releases have none."""

    def read(name: str) -> BuildRecord | None:
        with parsing(f"{index.uri}/{name} is damaged", "delete it"):
            value = json.loads(index.get(name) or b"")
            # Another format was written by a newer release.
            return BuildRecord(**value) if value.pop("format") == _FORMAT else None

    return [record for record in in_threads(read, _names(index)[-last:]) if record is not None]


def delete_old_builds(index: Store, *, keep: int) -> int:
    """Delete all but the newest ``keep`` records; return how many were deleted."""
    old = _names(index)[:-keep]
    for name in old:
        index.delete(name)
    return len(old)


def _names(index: Store) -> list[str]:
    return sorted(name for name in index.names(BUILDS_FOLDER) if _NAME.fullmatch(name))


def _row(shard: base_shard.BuiltShard) -> dict[str, Any]:
    manifest = shard.manifest
    return {
        "sha": manifest.sha,
        "role": manifest.role,
        "documents": manifest.documents,
        "postings": manifest.postings,
        "bytes": sum(file.size for file in manifest.files),
        "reused": shard.reused,
        "seconds_impacts": round(shard.seconds_impacts, 3),
        "seconds_tantivy": round(shard.seconds_tantivy, 3),
    }


def build_index(deployment: Deployment, inspect: publish.Inspect | None = None) -> IndexSummary:
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
    plan = index_plan.plan_index(deployment)
    index = Store(folders.absolute(settings.output), deployment.storage.options)
    index_shards.add_bundle(index, plan.bundle)
    attempts: list[derive.DerivedVersion] = []
    publisher, publication = publish.Publisher(index, inspect=inspect), None
    with Workers(deployment.ray, check=partial(require_on_nodes, plan.snapshot, settings.output)) as workers:
        while publication is None:
            current = publish.read_current_version(index)
            before = current.number
            known = attempts[-1].changes if attempts else None
            derived = derive.derive_version(plan, settings, index, current.version, workers, known)
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


def _summarize(attempts: Sequence[derive.DerivedVersion], seconds: float, publication: int) -> IndexSummary:
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
        bytes_per_doc=bytes_per_doc(*_PARTS),
        **{f"bytes_per_doc_{part}": bytes_per_doc(part) for part in _PARTS},
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


def _tombstone_bytes(attempts: Sequence[derive.DerivedVersion]) -> int:
    sizes: dict[str, int] = {}
    for attempt in attempts:
        before = {one.file.path for one in attempt.base.tombstones if one} if attempt.base else set()
        files = [one.file for one in attempt.version.tombstones if one]
        sizes |= {file.path: file.size for file in files if file.path not in before}
    return sum(sizes.values())
