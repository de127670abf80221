"""Merge small parts of every partition, and write parts with many deleted rows again without them.

Encode jobs may run at the same time.

A commit removes the small parts and adds the merged one, based on the snapshot that was read. Of two concurrent commits
the second is rejected, loads the table and decides again. A merged part is valid as long as the table has all of the
parts that it replaces, with the same deleted rows.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lsr_prod import errors, logs
from lsr_prod.encoding.tables import Part, Table, TableFile, check_part, load_table, read_part, write_part
from lsr_prod.encoding.tables.live_rows import files_with_paths, to_files, total_deleted_rows
from lsr_prod.encoding.tables.part import large_strings
from lsr_prod.storage import Store, deletion_vector, in_threads

log = logs.get_log(__name__)

APP = "lsr_prod.compact"
DOCUMENT_ORDER = ("doc_id",)
"""Order of the rows of a part of the sparse table."""
_DELETED_SHARE = 0.5  # of the rows of a part: from here on it is written again, whatever its size
_ALWAYS_MERGED = 16  # a part below this fraction of the target is merged with smaller ones, however small they are
_CONFLICT_TRIES = 100
_MERGES_A_COMMIT = 64
_LONGEST_WAIT_S = 600.0  # a part that waits for its commit must stay younger than the retention of a vacuum


@dataclass(frozen=True, slots=True)
class Merge:
    """Parts of one partition to write as one, without their deleted rows."""

    partition: Mapping[str, str]  # values of the partition columns
    files: tuple[TableFile, ...]  # two or more parts, or one with deleted rows
    order: tuple[str, ...] = DOCUMENT_ORDER  # columns that the rows of the merged part are sorted by

    @property
    def origin(self) -> str:
        """The parts, each with its deleted rows: a table loses them with the commit, and never has them again."""
        return "\n".join(f"{file.path} {file.deleted.unique_id if file.deleted else ''}" for file in self.files)

    @property
    def deleted(self) -> int:
        """Number of deleted rows of the parts."""
        return sum(file.deleted.rows for file in self.files if file.deleted)


@dataclass(frozen=True, slots=True)
class CompactionSummary:
    """Summary of a compaction."""

    parts_before: int  # parts of the table before it
    parts_after: int  # parts of the table after it
    parts_merged: int  # parts that were replaced
    # merges that were dropped, since another commit had replaced their parts or deleted rows of them
    merges_skipped: int
    commits: int  # commits that the compaction made
    deleted_rows_dropped: int = 0  # deleted rows that are in no part of the newest version any more
    deleted_rows_left: int = 0  # deleted rows that still are in parts of the newest version

    def result(self, prefix: str = "") -> dict[str, int]:
        """Return the flat summary of a job, with ``prefix`` before each key."""
        return {f"{prefix}{name}": value for name, value in asdict(self).items()}


@dataclass(frozen=True, slots=True)
class MaintenanceSummary:
    """Summary of a maintenance job."""

    # summary of the compaction of the table; None if it was not compacted. A dry run counts the merges.
    compaction: CompactionSummary | None
    quarantine: CompactionSummary | None  # the same, of the quarantine
    garbage: tuple[str, ...]  # URIs of the files that nothing needs; deleted unless ``dry_run``
    # number of these files by kind, those of the quarantine with ``quarantine_`` before the kind
    kinds: Mapping[str, int]
    bytes_garbage: int  # bytes of these files
    versions_kept: tuple[int, ...]  # versions of the table that were kept besides the recent ones
    dry_run: bool  # nothing was changed
    seconds: float  # wall time

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


Merger = Callable[[Store, Sequence[Merge]], Iterable[tuple[Merge, Part | None]]]
"""Makes the merged parts, in any order; None: all rows of the merge are deleted."""


def compact(
    store: Store,
    target_bytes: int,
    *,
    run: Merger | None = None,
    files: Callable[[Table], pa.Table] | None = None,
    order: tuple[str, ...] = DOCUMENT_ORDER,
    purge: bool = False,
    dry_run: bool = False,
) -> CompactionSummary:
    """Merge the parts of each partition that are smaller than half of ``target_bytes`` into parts of about that size.

    Parts of which half of the rows are deleted are written again without these rows, whatever their size. What readers
    see does not change. A run that is killed leaves a valid table; the next run resumes.

    Args:
        store: the table's folder.
        target_bytes: size of a merged part.
        run: makes the merged parts, in any order; default: one after the other in this process.
        files: returns the files of a snapshot that may be merged; default: all of them.
        order: columns that the rows of merged parts are sorted by.
        purge: write every part with deleted rows again.
        dry_run: count the merges, but write nothing.

    Raises:
        ArtifactError: there is no table, or a part is damaged.
        CommitError: other writers committed first, too many times.
    """
    table = load_table(store)
    before = table.file_table()
    merged = skipped = commits = dropped = 0
    merges = plan_merges(before if files is None else files(table), target_bytes, order, purge=purge)
    if dry_run:
        merged, dropped = sum(len(merge.files) for merge in merges), sum(merge.deleted for merge in merges)
        after = before.num_rows - merged + len(merges)
        return CompactionSummary(before.num_rows, after, merged, 0, 0, dropped, total_deleted_rows(before) - dropped)
    for done in _batches((run or _one_by_one)(store, merges)):
        committed = _commit(store, done)
        merged += sum(len(merge.files) for merge in committed)
        dropped += sum(merge.deleted for merge in committed)
        skipped += len(done) - len(committed)
        commits += bool(committed)
    left = load_table(store).file_table()
    counts = (merged, skipped, commits, dropped, total_deleted_rows(left))
    return CompactionSummary(before.num_rows, left.num_rows, *counts)


def plan_merges(
    files: pa.Table, target_bytes: int, order: tuple[str, ...] = DOCUMENT_ORDER, *, purge: bool = False
) -> list[Merge]:
    """Group the parts of each partition that are written again, smallest first, into groups of ``target_bytes``.

    These are the parts with less than half of ``target_bytes`` if there are two of them, and parts of which half of the
    rows are deleted. Deleted rows do not count as bytes. A part above 1/16 of ``target_bytes`` is not merged with
    others that have less than half of its bytes together: so a row is written again a few times, not every night.
    """
    by_partition: dict[tuple[tuple[str, str], ...], list[TableFile]] = defaultdict(list)
    for file in to_files(files.filter(pc.or_(pc.less(files["size"], target_bytes / 2), files["deleted"].is_valid()))):
        if _live_bytes(file) < target_bytes / 2 or _is_rewritten(file, purge):
            by_partition[tuple((name, value or "") for name, value in file.partition.items())].append(file)
    return [
        Merge(dict(values), group, order)
        for values, some in by_partition.items()
        for group in _groups(some, target_bytes)
        if len(group) > 1 or (group and _is_rewritten(group[0], purge))
    ]


def merge_parts(store: Store, merge: Merge) -> Part | None:
    """Write the rows of the parts, sorted, as one part; all of them are in memory at once.

    Returns:
        The part; None if all rows are deleted.
    """
    tables = []
    for file in merge.files:
        table = read_part(store, file)
        if file.live_rows is not None and table.num_rows != file.live_rows:
            raise errors.ArtifactError(
                f"{store.uri}/{file.path} has {table.num_rows} rows, but the table's log says {file.live_rows}; "
                "encode the table again"
            )
        tables.append(table.cast(large_strings(table.schema)))
    folder = "/".join(f"{name}={value}" for name, value in merge.partition.items())
    rows = pa.concat_tables(tables, promote_options="default")  # another program may write nullable columns
    if not rows.num_rows:
        return None
    return write_part(store, folder, rows.sort_by([(name, "ascending") for name in merge.order]), merge.origin)


def _groups(files: list[TableFile], target_bytes: int) -> list[tuple[TableFile, ...]]:
    groups: list[list[TableFile]] = []
    size = 0.0
    for file in sorted(files, key=lambda one: (_live_bytes(one), one.path)):
        if not groups or size + _live_bytes(file) > target_bytes:
            groups.append([])
            size = 0
        groups[-1].append(file)
        size += _live_bytes(file)
    return [group for some in groups for group in _without_largest(some, target_bytes / _ALWAYS_MERGED)]


def _without_largest(group: list[TableFile], limit: float) -> list[tuple[TableFile, ...]]:
    """Split off a part with ``limit`` bytes that is more than twice as large as the others together.

    Otherwise every night would write it again for the few rows of that night.
    """
    *others, largest = group
    if _live_bytes(largest) >= max(limit, 2 * sum(map(_live_bytes, others))):
        return [tuple(others), (largest,)]
    return [tuple(group)]


def _is_rewritten(file: TableFile, purge: bool) -> bool:
    if file.deleted is None:
        return False
    return purge or (file.rows is not None and file.deleted.rows >= _DELETED_SHARE * file.rows)


def _live_bytes(file: TableFile) -> float:
    """Return the size of a part without its deleted rows, if rows have about the same size."""
    if not file.rows or file.live_rows is None:
        return file.size
    return file.size * file.live_rows / file.rows


def _one_by_one(store: Store, merges: Sequence[Merge]) -> Iterator[tuple[Merge, Part | None]]:
    for merge in merges:
        yield merge, merge_parts(store, merge)


def _batches(done: Iterable[tuple[Merge, Part | None]]) -> Iterator[list[tuple[Merge, Part | None]]]:
    batch: list[tuple[Merge, Part | None]] = []
    began = time.monotonic()
    for one in done:
        batch.append(one)
        if len(batch) == _MERGES_A_COMMIT or time.monotonic() - began > _LONGEST_WAIT_S:
            yield batch
            batch, began = [], time.monotonic()
    if batch:
        yield batch


def _commit(store: Store, done: Sequence[tuple[Merge, Part | None]]) -> list[Merge]:
    """Replace the parts of the merges that are still valid, and return these merges."""
    # The worker has verified what it wrote; a part that waited for a slow merge may have been deleted since.
    in_threads(partial(check_part, store), [part for _, part in done if part])
    for attempt in range(_CONFLICT_TRIES):
        table = load_table(store)
        merged = [file.path for merge, _ in done for file in merge.files]
        current = {file.path: file.deleted for file in to_files(files_with_paths(table.file_table(), merged))}
        valid = [(merge, part) for merge, part in done if _is_valid(merge, current)]
        if not valid:
            return []
        adds = [(part, merge.partition) for merge, part in valid if part]
        removes = [file.path for merge, _ in valid for file in merge.files]
        version = (table.transaction_version(APP) or 0) + 1
        try:
            table.commit(adds, removes, app=APP, version=version, epoch=0, data_change=False)
        except errors.TableConflictError:
            time.sleep(min(1.0, 0.02 * (attempt + 1)))
            continue
        log.info("compacted", extra={"fields": {"table": store.uri, "parts": len(removes), "into": len(adds)}})
        return [merge for merge, _ in valid]
    raise errors.CommitError(
        f"{store.uri}: other writers committed first {_CONFLICT_TRIES} times; compact when fewer of them run"
    )


def _is_valid(merge: Merge, current: Mapping[str, deletion_vector.DeletionVector | None]) -> bool:
    """Return whether the table has the parts, with the deleted rows that the merge left out."""
    return all(file.path in current and current[file.path] == file.deleted for file in merge.files)
