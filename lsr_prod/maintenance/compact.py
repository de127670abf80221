"""Merge the small parts of every partition; encode jobs may run at the same time.

A commit removes the small parts and adds the merged one, based on the snapshot that was read. Of two concurrent commits
the second is rejected, loads the table and decides again. A merged part is valid as long as the table has all of the
small parts that it replaces.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from lsr_prod.errors import ArtifactError, CommitError, TableConflictError
from lsr_prod.maintenance.summaries import CompactionSummary
from lsr_prod.storage import Store
from lsr_prod.storage.threads import in_threads
from lsr_prod.tables import Part, Table, TableFile, check_part, open_table, read_part, write_part
from lsr_prod.tables.file_table import files_with_paths, to_files
from lsr_prod.tables.schema import large_strings

__all__ = ["Merge", "Merger", "compact", "merge_parts", "plan_merges"]

log = logging.getLogger(__name__)

APP = "lsr_prod.compact"
_CONFLICT_TRIES = 100
_MERGES_A_COMMIT = 64
_LONGEST_WAIT_S = 600.0  # a part that waits for its commit must stay younger than the retention of a vacuum
_DOCUMENT_ORDER = ("doc_id",)


@dataclass(frozen=True, slots=True)
class Merge:
    """Parts of one partition to merge into one.

    Attributes:
        partition: values of the partition columns.
        files: two or more small parts.
        order: columns that the rows of the merged part are sorted by.
    """

    partition: Mapping[str, str]
    files: tuple[TableFile, ...]
    order: tuple[str, ...] = _DOCUMENT_ORDER


Merger = Callable[[Store, Sequence[Merge]], Iterable[tuple[Merge, Part]]]


def compact(
    store: Store,
    target_bytes: int,
    *,
    run: Merger | None = None,
    files: Callable[[Table], pa.Table] | None = None,
    order: tuple[str, ...] = _DOCUMENT_ORDER,
    dry_run: bool = False,
) -> CompactionSummary:
    """Merge the parts of each partition that are smaller than half of ``target_bytes`` into parts of about that size.

    The rows of the table do not change. A run that is killed leaves a valid table; the next run resumes.

    Args:
        store: the table's folder.
        target_bytes: size of a merged part.
        run: makes the merged parts, in any order; default: one after the other in this process.
        files: returns the files of a snapshot that may be merged; default: all of them.
        order: columns that the rows of merged parts are sorted by.
        dry_run: count the merges, but write nothing.

    Raises:
        ArtifactError: there is no table, or a part is damaged.
        CommitError: other writers committed first, too many times.
    """
    table = _load(store)
    before = table.file_table().num_rows
    merged = skipped = commits = 0
    merges = plan_merges(table.file_table() if files is None else files(table), target_bytes, order)
    if dry_run:
        merged = sum(len(merge.files) for merge in merges)
        return CompactionSummary(before, before - merged + len(merges), merged, 0, 0)
    for done in _batches((run or _one_by_one)(store, merges)):
        committed = _commit(store, done)
        merged += sum(len(merge.files) for merge in committed)
        skipped += len(done) - len(committed)
        commits += bool(committed)
    return CompactionSummary(before, _load(store).file_table().num_rows, merged, skipped, commits)


def plan_merges(files: pa.Table, target_bytes: int, order: tuple[str, ...] = _DOCUMENT_ORDER) -> list[Merge]:
    """Group the small parts of each partition, smallest first, into groups of at most ``target_bytes``.

    Args:
        files: files of a snapshot.
        target_bytes: size of a merged part.
        order: of the merges.
    """
    small: dict[tuple[tuple[str, str], ...], list[TableFile]] = defaultdict(list)
    for file in to_files(files.filter(pc.less(files["size"], target_bytes / 2))):
        small[tuple((name, value or "") for name, value in file.partition.items())].append(file)
    merges = []
    for values, some in small.items():
        merge = partial(Merge, dict(values), order=order)
        group: list[TableFile] = []
        for file in sorted(some, key=lambda one: (one.size, one.path)):
            if group and sum(one.size for one in group) + file.size > target_bytes:
                merges.append(merge(tuple(group)))
                group = []
            group.append(file)
        merges.append(merge(tuple(group)))
    return [merge for merge in merges if len(merge.files) > 1]


def merge_parts(store: Store, merge: Merge) -> Part:
    """Write the rows of the small parts, sorted, as one part; all of them are in memory at once.

    Raises:
        ArtifactError: a part is damaged, or its number of rows differs from the table's log.
    """
    tables = []
    for file in merge.files:
        table = read_part(store, file.path)
        if file.rows is not None and table.num_rows != file.rows:
            raise ArtifactError(
                f"{store.uri}/{file.path} has {table.num_rows} rows, but the table's log says {file.rows}; "
                "encode the table again"
            )
        tables.append(table.cast(large_strings(table.schema)))
    folder = "/".join(f"{name}={value}" for name, value in merge.partition.items())
    rows = pa.concat_tables(tables, promote_options="default")  # an earlier release wrote fewer columns
    return write_part(store, folder, rows.sort_by([(name, "ascending") for name in merge.order]))


def _one_by_one(store: Store, merges: Sequence[Merge]) -> Iterator[tuple[Merge, Part]]:
    for merge in merges:
        yield merge, merge_parts(store, merge)


def _batches(done: Iterable[tuple[Merge, Part]]) -> Iterator[list[tuple[Merge, Part]]]:
    batch: list[tuple[Merge, Part]] = []
    began = time.monotonic()
    for one in done:
        batch.append(one)
        if len(batch) == _MERGES_A_COMMIT or time.monotonic() - began > _LONGEST_WAIT_S:
            yield batch
            batch, began = [], time.monotonic()
    if batch:
        yield batch


def _commit(store: Store, done: Sequence[tuple[Merge, Part]]) -> list[Merge]:
    """Replace the small parts of the merges that are still valid, and return these merges."""
    # The worker has verified what it wrote; a part that waited for a slow merge may have been deleted since.
    in_threads(partial(check_part, store), [part for _, part in done])
    for attempt in range(_CONFLICT_TRIES):
        table = _load(store)
        merged = [file.path for merge, _ in done for file in merge.files]
        current = {*files_with_paths(table.file_table(), merged)["path"].to_pylist()}
        valid = [(merge, part) for merge, part in done if {file.path for file in merge.files} <= current]
        if not valid:
            return []
        adds = [(part, merge.partition) for merge, part in valid]
        removes = [file.path for merge, _ in valid for file in merge.files]
        version = (table.transaction_version(APP) or 0) + 1
        try:
            table.commit(adds, removes, app=APP, version=version, epoch=0, data_change=False)
        except TableConflictError:
            time.sleep(min(1.0, 0.02 * (attempt + 1)))
            continue
        log.info("compacted", extra={"fields": {"table": store.uri, "parts": len(removes), "into": len(adds)}})
        return [merge for merge, _ in valid]
    raise CommitError(
        f"{store.uri}: other writers committed first {_CONFLICT_TRIES} times; compact when fewer of them run"
    )


def _load(store: Store) -> Table:
    table = open_table(store)
    if table is None:
        raise ArtifactError(f"{store.uri} is not a table; give a folder that lsr-prod encode wrote")
    return table
