"""Builds of an index: shards, bytes, seconds and gates, from the records in the index."""

from typing import Any

from lsr_prod.errors import ArtifactError
from lsr_prod.indexing.build_records import BuildRecord, read_builds
from lsr_prod.operations.gates.check import read_report
from lsr_prod.storage import Store

_FIGURES = (
    "mode", "reason", "documents", "shards", "shards_reused", "upserts", "deletes", "tombstones", "documents_rebuilt",
    "bytes_per_doc", "bytes_written", "seconds", "seconds_impacts", "seconds_tantivy", "version", "publication",
)  # fmt: skip


def describe_builds(index: Store, *, last: int = 100) -> dict[str, Any]:
    """Return the newest builds of an index, oldest first, and the results of the gates of the last one.

    Returns:
        ``index``, ``builds`` (figures of ``IndexSummary`` and ``finished_at``), ``shards`` of the last build, and
        ``gates``: results of its report, without gates that are off.
    """
    builds = read_builds(index, last=last)
    if not builds:
        raise ArtifactError(
            f"{index.uri} has no record of a build; give index.output of an index that this release has built"
        )
    return {
        "index": index.uri,
        "builds": [
            {"finished_at": build.finished_at, **{name: build.summary.get(name) for name in _FIGURES}}
            for build in builds
        ],
        "shards": [dict(shard) for shard in builds[-1].shards],
        "gates": _gates(index, builds[-1]),
    }


def _gates(index: Store, build: BuildRecord) -> list[dict[str, Any]]:
    if not build.report:
        return []
    try:
        results = read_report(index, build.report).results
    except ArtifactError:
        return []  # retention deletes reports with their publication
    return [
        {
            "gate": one.gate,
            "verdict": one.verdict,
            "measured": one.measured,
            "limit": one.limit,
            "finding": one.sentence,
        }
        for one in results
        if one.verdict != "off"
    ]
