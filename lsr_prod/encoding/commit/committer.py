"""The committer: commits each wave as a whole and exactly once, despite crashes and concurrent attempts.

The quarantine table is committed first and the sparse table last, so that the app transaction of the sparse table says
that a wave is complete. A commit is based on the snapshot that was read, and the table refuses it if the same plan has
committed since. After a refusal or an error the committer loads the table and decides again.
"""

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

from lsr_prod import errors, logs
from lsr_prod.encoding import node_tasks, results
from lsr_prod.encoding.commit.fence import Epoch
from lsr_prod.encoding.plans.successors import check_not_followed
from lsr_prod.encoding.tables import Part, Table, TableFile, check_part, count_rows, open_table, quarantine_rows
from lsr_prod.encoding.tables.deletions import Deletion, merge_deletions
from lsr_prod.encoding.tables.live_rows import files_with_paths, to_files
from lsr_prod.storage import Store, deletion_vector

log = logs.get_log(__name__)

CheckParts = Callable[[Store, Store, float, Sequence[results.CellResult]], None]
MergeDeletions = Callable[[Store, Sequence[Sequence[Deletion]]], Sequence[Deletion]]

_STORE_TRIES = 5
# A refusal means that another commit succeeded: with 16 busy writers of one table, dozens of tries were needed.
_CONFLICT_TRIES = 200


def merge_all(table: Store, groups: Sequence[Sequence[Deletion]]) -> list[Deletion]:
    """Return one deletion for the deletions of each part; see ``deletions.merge_deletions``."""
    return [merge_deletions(table, group) for group in groups]


def check_cell(table: Store, quarantine: Store, cell: results.CellResult) -> None:
    """Check the parts of a cell in the stores."""
    for part in cell.parts:
        check_part(table, part)
    if cell.quarantine:
        check_part(quarantine, cell.quarantine)
    _check_vectors(table, cell)


def check_for_commit(table: Store, quarantine: Store, began: float, cells: Sequence[results.CellResult]) -> None:
    """Check the parts of some cells, and touch those that are older than the attempt: a vacuum would delete them."""
    for cell in cells:
        for part in cell.parts:
            _check_and_touch(table, part, began)
        if cell.quarantine:
            _check_and_touch(quarantine, cell.quarantine, began)
        _check_vectors(table, cell)
        for path in {path for deletion in cell.deletions if (path := deletion_vector.file_of(deletion.vector))}:
            entry = table.entry(path)
            if entry is None or entry.modified < math.floor(began):
                _touch(table, path)


def check_on_workers(
    tasks: node_tasks.NodeTasks, table: Store, quarantine: Store, began: float, cells: Sequence[results.CellResult]
) -> None:
    """Run ``check_for_commit``; of many cells by Ray tasks."""
    tasks.run_groups(check_for_commit, (table, quarantine, began), cells, task="checking parts before their commit")


def merge_on_workers(tasks: node_tasks.NodeTasks, table: Store, groups: Sequence[Sequence[Deletion]]) -> list[Deletion]:
    """Run ``merge_all``, of many parts by Ray tasks; parts that one cell deletes rows of need no work."""
    merged = [group[0] for group in groups if len(group) == 1]
    left = [group for group in groups if len(group) > 1]
    return [*merged, *chain(*tasks.run_groups(merge_all, (table,), left, task="merging deletion vectors"))]


def waves_done(table: Table, plan: str) -> int:
    """Return the number of waves of a plan that a snapshot has."""
    version = table.transaction_version(plan)
    return 0 if version is None else version + 1


@dataclass(frozen=True, slots=True)
class Committer:
    """Commits the waves of one plan, in order."""

    epoch: Epoch  # this attempt
    table: Store  # the sparse table's folder
    quarantine: Store  # the quarantine table's folder
    # ``check_for_commit``, or a function that spreads it over workers: the driver makes no request per part
    check: CheckParts = check_for_commit
    merge: MergeDeletions = merge_all  # ``merge_all``, or a function that spreads it over workers

    def load(self) -> Table:
        """Return the newest snapshot of the sparse table."""
        return _load(self.table)

    def fence(self) -> None:
        """Make all snapshots of the two tables stale that older attempts have read.

        Otherwise an attempt that stalled between its epoch check and its commit could still commit the wave to one
        table after the newer attempt has committed it to the other, and a document that failed in only one of the
        attempts would be in both tables or in none. The transactions repeat the last committed wave (-1 before the
        first) and add no file.
        """
        for store in (self.quarantine, self.table):
            self.until_accepted(partial(self._repeat, store), "the fence")

    def clear_quarantine(self, wave: int) -> None:
        """Remove the bad rows of a wave of a plan that was given up before the wave was complete."""

        def clear() -> bool:
            self._commit_quarantine(wave, [])
            return True

        self.until_accepted(clear, f"the removal of wave {wave}")

    def _repeat(self, store: Store) -> bool:
        table = _load(store)
        self.epoch.check()
        self._write(table, [], [], waves_done(table, self.epoch.plan) - 1)
        return True

    def commit(self, result: results.WaveResult) -> bool:
        """Commit a wave to both tables.

        Returns:
            False if the table had it already.
        """
        result.check()
        self.check(self.table, self.quarantine, self.epoch.began(), result.cells)
        groups = list(result.deletions().values())
        deletions = {deletion.path: deletion for deletion in self.merge(self.table, groups)} if groups else {}
        return self.until_accepted(lambda: self._decide(result, deletions), f"wave {result.wave}")

    def until_accepted(self, decide: Callable[[], bool], what: str) -> bool:
        """Decide about a commit, again after every refusal or error; returns what ``decide`` returns."""
        refused: Exception | None = None
        conflicts = failures = 0
        while conflicts < _CONFLICT_TRIES and failures < _STORE_TRIES:
            try:
                return decide()
            except errors.TableConflictError as error:
                conflicts += 1
                refused, pause = error, random.uniform(0.01, 0.05 * min(conflicts, 10))  # noqa: S311 (no secret)
            except errors.StorageError as error:
                failures += 1
                refused, pause = error, 0.1 * 2**failures
            log.warning("commit refused", extra={"fields": {"what": what, "error": str(refused)}})
            time.sleep(pause)
        raise errors.CommitError(
            f"{what} was refused {conflicts + failures} times ({refused}); run the job again"
        ) from refused

    def _decide(self, result: results.WaveResult, deletions: Mapping[str, Deletion]) -> bool:
        table = self.load()
        done = waves_done(table, self.epoch.plan)
        if done > result.wave:
            return False
        if done < result.wave:
            raise errors.CommitError(f"wave {result.wave} is next but the table has {done} waves; run the job again")
        check_not_followed(self.table, self.epoch.plan, done)
        whole = _check_deletions(table, result.wave, deletions)
        self._commit_quarantine(result.wave, [cell.quarantine for cell in result.cells if cell.quarantine])
        adds = [(part, {"bucket": str(cell.bucket)}) for cell in result.cells for part in cell.parts]
        self.epoch.check()
        vectors = {path: deletion.vector for path, deletion in deletions.items() if path not in whole}
        self._write(table, adds, whole, result.wave, vectors)
        return True

    def _commit_quarantine(self, wave: int, bad: Sequence[Part]) -> None:
        """Replace the committed bad rows of the wave by those of this attempt."""
        table = _load(self.quarantine)
        values = dict(zip(quarantine_rows.PARTITION, (self.epoch.plan, str(wave)), strict=True))
        before = set(quarantine_rows.committed_files(table, self.epoch.plan, [wave]))
        removes = sorted(before - {part.path for part in bad})
        adds = [(part, values) for part in bad if part.path not in before]
        if not adds and not before:
            return
        # The transaction is written even without a change: it makes the snapshot of an older attempt stale.
        self.epoch.check()
        self._write(table, adds, removes, wave)

    def _write(
        self,
        table: Table,
        adds: Sequence[tuple[Part, Mapping[str, str | None]]],
        removes: Sequence[str],
        wave: int,
        deletions: Mapping[str, deletion_vector.DeletionVector] | None = None,
    ) -> None:
        epoch = self.epoch
        table.commit(adds, removes, app=epoch.plan, version=wave, epoch=epoch.number, deletions=deletions)


def _load(store: Store) -> Table:
    table = open_table(store)
    if table is None:
        raise errors.CommitError(f"{store.uri} is no longer a table; restore it, or give a new encode.table")
    return table


def _check_and_touch(store: Store, part: Part, began: float) -> None:
    """Check a part, and touch it if it is older than this attempt: a vacuum would delete it as garbage."""
    if check_part(store, part).modified < math.floor(began):
        _touch(store, part.path)


def _touch(store: Store, path: str) -> None:
    try:
        store.touch(path)
    except FileNotFoundError as error:
        raise errors.CommitError(f"{store.uri}/{path} was deleted; run the job again") from error


def _check_vectors(table: Store, cell: results.CellResult) -> None:
    """Check that the deletion vectors of a cell can be read."""
    try:
        deletion_vector.check_vectors(table, (deletion.vector for deletion in cell.deletions))
    except errors.ArtifactError as error:
        raise errors.CommitError(f"{error}, or run the job again") from error


def _check_deletions(table: Table, wave: int, deletions: Mapping[str, Deletion]) -> list[str]:
    """Check the parts that a wave deletes rows of, and return those of which no row is left."""
    files = {file.path: file for file in to_files(files_with_paths(table.file_table(), deletions.keys()))}
    stale = [
        path for path, deletion in deletions.items() if path not in files or _vector_id(files[path]) != deletion.before
    ]
    if stale:
        raise errors.StaleWaveError(
            f"wave {wave} deletes rows of {len(stale)} parts that another commit has replaced or changed (a "
            "compaction?); run the job again"
        )
    whole = []
    for path, deletion in deletions.items():
        file, deleted = files[path], deletion.vector.rows
        rows = count_rows(table.store, path) if file.rows is None else file.rows
        if deleted > rows or deletion.rows_before != (file.deleted.rows if file.deleted else 0):
            raise errors.IncompleteWaveError(
                f"wave {wave} deletes {deletion.rows} rows of {path}, which has {rows}; nothing was committed, report "
                "this"
            )
        if deleted == rows:
            whole.append(path)
    return whole


def _vector_id(file: TableFile) -> str | None:
    return file.deleted.unique_id if file.deleted else None
