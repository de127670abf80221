"""Summaries that the functions of this package return to jobs; ``result`` gives the keys of the line ``RESULT``."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class CompactionSummary:
    """Summary of a compaction.

    Attributes:
        parts_before: parts of the table before it.
        parts_after: parts of the table after it.
        merged: parts that were replaced.
        skipped: merges that were dropped, since another commit had replaced their parts or deleted rows of them.
        commits: commits that the compaction made.
        dropped: deleted rows that are in no part of the newest version any more.
        deleted_rows: deleted rows that still are in parts of the newest version.
    """

    parts_before: int
    parts_after: int
    merged: int
    skipped: int
    commits: int
    dropped: int = 0
    deleted_rows: int = 0

    def result(self, prefix: str = "") -> dict[str, int]:
        """Return the flat summary of a job, with ``prefix`` before each key."""
        values = {
            "parts_before": self.parts_before,
            "parts_after": self.parts_after,
            "parts_merged": self.merged,
            "merges_skipped": self.skipped,
            "commits": self.commits,
            "deleted_rows_dropped": self.dropped,
            "deleted_rows_left": self.deleted_rows,
        }
        return {f"{prefix}{name}": value for name, value in values.items()}


@dataclass(frozen=True, slots=True)
class MaintenanceSummary:
    """Summary of a maintenance job.

    Attributes:
        compaction: summary of the compaction of the table; None if it was not compacted. A dry run counts the merges.
        quarantine: the same, of the quarantine.
        garbage: URIs of the files that nothing needs; deleted unless ``dry_run``.
        kinds: number of these files by kind, those of the quarantine with ``quarantine_`` before the kind.
        bytes_garbage: bytes of these files.
        versions_kept: versions of the table that were kept besides the recent ones.
        dry_run: nothing was changed.
        seconds: wall time.
    """

    compaction: CompactionSummary | None
    quarantine: CompactionSummary | None
    garbage: tuple[str, ...]
    kinds: Mapping[str, int]
    bytes_garbage: int
    versions_kept: tuple[int, ...]
    dry_run: bool
    seconds: float

    @property
    def files_deleted(self) -> int:
        """Number of files that were deleted."""
        return 0 if self.dry_run else len(self.garbage)

    def result(self) -> dict[str, Any]:
        """Return the summary of a job; only a dry run lists the files."""
        return {
            **(self.compaction.result() if self.compaction else {}),
            **(self.quarantine.result("quarantine_") if self.quarantine else {}),
            "files_deleted": self.files_deleted,
            "files_garbage": len(self.garbage),
            "bytes_garbage": self.bytes_garbage,
            "garbage_by_kind": dict(self.kinds),
            "versions_kept": list(self.versions_kept),
            "dry_run": self.dry_run,
            "seconds": self.seconds,
            **({"garbage": list(self.garbage)} if self.dry_run else {}),
        }
