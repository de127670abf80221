"""Summaries that the functions of this package return to jobs; ``result`` gives the keys of the line ``RESULT``."""

from dataclasses import dataclass
from typing import Any

__all__ = ["CompactionSummary", "MaintenanceSummary"]


@dataclass(frozen=True, slots=True)
class CompactionSummary:
    """Summary of a compaction.

    Attributes:
        parts_before: parts of the table before it.
        parts_after: parts of the table after it.
        merged: small parts that were replaced.
        skipped: merges that were dropped, since another commit had replaced their parts.
        commits: commits that the compaction made.
    """

    parts_before: int
    parts_after: int
    merged: int
    skipped: int
    commits: int

    def result(self) -> dict[str, int]:
        """Return the flat summary of a job."""
        return {
            "parts_before": self.parts_before,
            "parts_after": self.parts_after,
            "parts_merged": self.merged,
            "merges_skipped": self.skipped,
            "commits": self.commits,
        }


@dataclass(frozen=True, slots=True)
class MaintenanceSummary:
    """Summary of a maintenance job.

    Attributes:
        compaction: summary of the compaction; None if the table was not compacted.
        garbage: URIs of the files that no kept version names; deleted unless ``dry_run``.
        bytes_garbage: bytes of these files.
        versions_kept: versions of the table that were kept besides the recent ones.
        dry_run: nothing was changed.
        seconds: wall time.
    """

    compaction: CompactionSummary | None
    garbage: tuple[str, ...]
    bytes_garbage: int
    versions_kept: tuple[int, ...]
    dry_run: bool
    seconds: float

    @property
    def files_deleted(self) -> int:
        """Number of files that were deleted."""
        return 0 if self.dry_run else len(self.garbage)

    def result(self) -> dict[str, Any]:
        """Return the flat summary of a job; only a dry run lists the files."""
        return {
            **(self.compaction.result() if self.compaction else {}),
            "files_deleted": self.files_deleted,
            "files_garbage": len(self.garbage),
            "bytes_garbage": self.bytes_garbage,
            "versions_kept": list(self.versions_kept),
            "dry_run": self.dry_run,
            "seconds": self.seconds,
            **({"garbage": list(self.garbage)} if self.dry_run else {}),
        }
