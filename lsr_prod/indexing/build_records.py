"""Records of finished index builds in their index: ``builds/<finished>.json``. They are never changed.

They serve pages and people only: no build depends on them. A run that neither built a shard nor published leaves none.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from lsr_prod.errors import ArtifactError, StorageError
from lsr_prod.formats.digest import record_bytes
from lsr_prod.indexing.shard import BuiltShard
from lsr_prod.indexing.summaries import IndexSummary
from lsr_prod.logs import get_log
from lsr_prod.storage import Store
from lsr_prod.storage.threads import in_threads

log = get_log(__name__)

BUILDS_FOLDER = "builds"
_FORMAT = 1
_TIME = "%Y%m%dT%H%M%S%fZ"
_NAME = re.compile(rf"{BUILDS_FOLDER}/\d{{8}}T\d{{12}}Z\.json")


@dataclass(frozen=True, slots=True)
class BuildRecord:
    """Record of a finished build.

    Attributes:
        finished_at: UTC, ISO 8601.
        report: sha256 of the report of the gates; "": there is none.
        summary: the fields of ``IndexSummary``.
        shards: per shard that the build planned: ``sha``, ``role``, ``documents``, ``postings``, ``bytes``, ``reused``,
            ``seconds_impacts`` and ``seconds_tantivy``.
    """

    finished_at: str
    report: str
    summary: Mapping[str, Any]
    shards: Sequence[Mapping[str, Any]]


def save_build(index: Store, summary: IndexSummary, shards: Sequence[BuiltShard], report: str) -> None:
    """Write the record of a build; a failure is logged, as the version is written already."""
    now = datetime.now(UTC)
    rows = {shard.manifest.sha: _row(shard) for shard in shards}
    record = BuildRecord(now.isoformat(timespec="seconds"), report, summary.result(), list(rows.values()))
    try:
        index.put_new(
            f"{BUILDS_FOLDER}/{now.strftime(_TIME)}.json", record_bytes({"format": _FORMAT, **asdict(record)})
        )
    except StorageError as error:
        log.warning("record of the build not written", extra={"fields": {"error": str(error)}})


def read_builds(index: Store, *, last: int) -> list[BuildRecord]:
    """Return the newest records of builds, oldest first; builds of earlier releases have none."""

    def read(name: str) -> BuildRecord | None:
        try:
            value = json.loads(index.get(name) or b"")
            if value.pop("format") != _FORMAT:
                return None  # a newer release wrote it
            return BuildRecord(**value)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ArtifactError(f"{index.uri}/{name} is damaged ({error!r}); delete it") from error

    return [record for record in in_threads(read, _names(index)[-last:]) if record is not None]


def delete_old_builds(index: Store, *, keep: int) -> int:
    """Delete all but the newest ``keep`` records; return how many were deleted."""
    old = _names(index)[:-keep]
    for name in old:
        index.delete(name)
    return len(old)


def _names(index: Store) -> list[str]:
    return sorted(name for name in index.names(BUILDS_FOLDER) if _NAME.fullmatch(name))


def _row(shard: BuiltShard) -> dict[str, Any]:
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
