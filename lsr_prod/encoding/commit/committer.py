"""The committer: a wave enters the tables as a whole, once, whatever crashes and however many attempts are alive.

The quarantine table goes first and the sparse table last, so that the sparse table's app transaction says that a wave
is done. A commit is made from the snapshot that was read; every sink refuses it if the same plan has committed since.
After any refusal or error the committer loads the table again and decides again.
"""

import logging
import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from lsr_prod.encoding.commit.fence import Epoch
from lsr_prod.encoding.results import CellResult, WaveResult
from lsr_prod.errors import CommitError, StaleWaveError, StorageError, TableConflictError
from lsr_prod.storage import Store
from lsr_prod.tables import Part, Table, check_part, open_table
from lsr_prod.tables.quarantine import PARTITION, committed_files

__all__ = ["Committer", "check_cell", "waves_done"]

log = logging.getLogger(__name__)

_STORE_TRIES = 5
# A refusal means that another commit got through: 16 busy writers of one table need some dozens.
_CONFLICT_TRIES = 200


def check_cell(table: Store, quarantine: Store, cell: CellResult) -> None:
    """Hold the parts of a cell against the stores.

    Raises:
        CommitError: one is not as described.
    """
    for part in cell.parts:
        check_part(table, part)
    if cell.quarantine:
        check_part(quarantine, cell.quarantine)


def waves_done(table: Table, plan: str) -> int:
    """How many waves of a plan a snapshot has."""
    version = table.transaction_version(plan)
    return 0 if version is None else version + 1


@dataclass(frozen=True, slots=True)
class Committer:
    """Commits the waves of one plan, in order.

    Attributes:
        epoch: this attempt.
        table: the sparse table's folder.
        quarantine: the quarantine table's folder.
    """

    epoch: Epoch
    table: Store
    quarantine: Store

    def fence(self) -> None:
        """Make every snapshot stale that an older attempt has read of the two tables.

        An attempt that stalled between its epoch check and its commit could else still win the wave in one of them,
        after the newer one had its say in the other: a document that failed in one attempt only would be in both
        tables or in none. The transactions repeat what is done (-1 before the first wave) and add no file.

        Raises:
            FencedError: a newer attempt has taken over.
            CommitError: the store keeps refusing.
        """
        for store in (self.quarantine, self.table):
            self._until_accepted(partial(self._repeat, store), "the fence")

    def _repeat(self, store: Store) -> bool:
        table = _load(store)
        self.epoch.check()
        self._write(table, [], [], waves_done(table, self.epoch.plan) - 1)
        return True

    def commit(self, result: WaveResult) -> bool:
        """Commit a wave to both tables.

        Returns:
            False if the table had it already.

        Raises:
            IncompleteWaveError: its rows do not add up.
            StaleWaveError: a part that it replaces is gone.
            FencedError: a newer attempt has taken over.
            CommitError: a part is not as described, an earlier wave is missing, or the store keeps refusing.
        """
        result.check()
        began = self.epoch.began()
        for cell in result.cells:
            for part in cell.parts:
                _hold(self.table, part, began)
            if cell.quarantine:
                _hold(self.quarantine, cell.quarantine, began)
        return self._until_accepted(lambda: self._decide(result), f"wave {result.wave}")

    def _until_accepted(self, decide: Callable[[], bool], what: str) -> bool:
        refused: Exception | None = None
        conflicts = failures = 0
        while conflicts < _CONFLICT_TRIES and failures < _STORE_TRIES:
            try:
                return decide()
            except TableConflictError as error:
                conflicts += 1
                refused, pause = error, random.uniform(0.01, 0.05 * min(conflicts, 10))  # noqa: S311 (no secret)
            except StorageError as error:
                failures += 1
                refused, pause = error, 0.1 * 2**failures
            log.warning("commit refused", extra={"fields": {"what": what, "error": str(refused)}})
            time.sleep(pause)
        raise CommitError(
            f"{what} was refused {conflicts + failures} times ({refused}); run the job again"
        ) from refused

    def _decide(self, result: WaveResult) -> bool:
        table = _load(self.table)
        done = waves_done(table, self.epoch.plan)
        if done > result.wave:
            return False
        if done < result.wave:
            raise CommitError(f"wave {result.wave} is next but the table has {done} waves; run the job again")
        removes = [path for cell in result.cells for path in cell.removes]
        _check_replaced(table, result.wave, removes)
        self._commit_quarantine(result.wave, [cell.quarantine for cell in result.cells if cell.quarantine])
        adds = [(part, {"bucket": str(cell.bucket)}) for cell in result.cells for part in cell.parts]
        self.epoch.check()
        self._write(table, adds, removes, result.wave)
        return True

    def _commit_quarantine(self, wave: int, bad: Sequence[Part]) -> None:
        """Make the committed bad rows of the wave those of this attempt, whatever an earlier one left."""
        table = _load(self.quarantine)
        values = dict(zip(PARTITION, (self.epoch.plan, str(wave)), strict=True))
        before = set(committed_files(table, self.epoch.plan, wave))
        removes = sorted(before - {part.path for part in bad})
        adds = [(part, values) for part in bad if part.path not in before]
        if not adds and not before:
            return
        # Also without a change the transaction is written: it makes the snapshot of an older attempt stale.
        self.epoch.check()
        self._write(table, adds, removes, wave)

    def _write(
        self, table: Table, adds: Sequence[tuple[Part, Mapping[str, str | None]]], removes: Sequence[str], wave: int
    ) -> None:
        table.commit(adds, removes, app=self.epoch.plan, version=wave, epoch=self.epoch.number)


def _load(store: Store) -> Table:
    table = open_table(store)
    if table is None:
        raise CommitError(f"{store.uri} is no longer a table; restore it, or give a new encode.table")
    return table


def _hold(store: Store, part: Part, began: float) -> None:
    """Check a part, and make it young if it is older than this attempt: a vacuum takes it for garbage else."""
    if check_part(store, part).modified >= math.floor(began):
        return
    try:
        store.touch(part.path)
    except FileNotFoundError as error:
        raise CommitError(f"{store.uri}/{part.path} is gone; run the job again") from error


def _check_replaced(table: Table, wave: int, removes: Sequence[str]) -> None:
    gone = set(removes) - {file.path for file in table.files()} if removes else None
    if gone:
        raise StaleWaveError(
            f"wave {wave} replaces {len(gone)} parts that another commit replaced (a compaction?); run the job again"
        )
