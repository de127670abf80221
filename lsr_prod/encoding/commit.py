"""The committer: a wave enters the tables as a whole, once, whatever crashes and however many attempts are alive.

The quarantine table goes first and the sparse table last, so that the sparse table's app transaction says that a wave
is done. delta-rs does not refuse a repeated app transaction by itself: what works as compare-and-swap is to read the
transaction's version and to commit from the same snapshot, because a concurrent commit of the same app id is refused.
After any error the committer loads the table again and decides again.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction, Transaction

from lsr_prod.encoding.fence import Epoch
from lsr_prod.encoding.parts import Part, check_part
from lsr_prod.encoding.quarantine import PARTITION, committed_files
from lsr_prod.errors import CommitError, IncompleteWaveError
from lsr_prod.storage import Store

__all__ = ["BucketResult", "Committer", "WaveResult", "waves_done"]

log = logging.getLogger(__name__)

_TRIES = 5


@dataclass(frozen=True, slots=True)
class BucketResult:
    """What an actor made of a bucket's rows in one wave.

    Attributes:
        bucket: number of the bucket.
        rows_in: rows of the source.
        part: documents.
        quarantine: bad rows.
        reasons: bad rows by reason.
        clipped: weights above the largest impact.
    """

    bucket: int
    rows_in: int
    part: Part | None
    quarantine: Part | None
    reasons: Mapping[str, int]
    clipped: int


@dataclass(frozen=True, slots=True)
class WaveResult:
    """A wave that is encoded and not committed."""

    wave: int
    buckets: tuple[BucketResult, ...]

    @property
    def rows_in(self) -> int:
        """Rows of the source."""
        return sum(bucket.rows_in for bucket in self.buckets)

    @property
    def rows_out(self) -> int:
        """Documents in the wave's parts."""
        return sum(bucket.part.rows for bucket in self.buckets if bucket.part)

    @property
    def clipped(self) -> int:
        """Weights above the largest impact."""
        return sum(bucket.clipped for bucket in self.buckets)

    @property
    def reasons(self) -> Counter[str]:
        """Bad rows by reason."""
        return sum((Counter(bucket.reasons) for bucket in self.buckets), Counter[str]())

    def check(self) -> None:
        """Nothing may be lost between source and parts.

        Raises:
            IncompleteWaveError: rows_in != rows_out + quarantined, or a bucket came in pieces.
        """
        quarantined = sum(bucket.quarantine.rows for bucket in self.buckets if bucket.quarantine)
        if self.rows_in != self.rows_out + quarantined or quarantined != self.reasons.total():
            raise IncompleteWaveError(
                f"wave {self.wave}: {self.rows_in} rows in, {self.rows_out} out and {quarantined} quarantined; "
                "nothing was committed, report this"
            )
        if len({bucket.bucket for bucket in self.buckets}) < len(self.buckets):
            raise IncompleteWaveError(
                f"wave {self.wave}: a bucket came in pieces, duplicates could pass; "
                "lower encode.wave_megabytes or give a new encode.table with more encode.buckets"
            )


def waves_done(table: DeltaTable, plan: str) -> int:
    """How many waves of a plan the table has."""
    version = table.transaction_version(plan)
    return 0 if version is None else int(version) + 1


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
        """Make every handle stale that an older attempt has read the sparse table with.

        An attempt that stalled between its epoch check and its commit could else still win the wave, after the newer
        one replaced its rows in the quarantine table: a document that failed in one of them only would be in both
        tables or in none. The transaction repeats what is done (-1 before the first wave) and adds no file.

        Raises:
            FencedError: a newer attempt has taken over.
            CommitError: the store keeps refusing.
        """

        def repeat() -> bool:
            table = _load(self.table)
            self.epoch.check()
            self._write(table, [], waves_done(table, self.epoch.plan) - 1, ["bucket"])
            return True

        self._until_accepted(repeat, "the fence")

    def commit(self, result: WaveResult) -> bool:
        """Commit a wave to both tables.

        Returns:
            False if the table had it already.

        Raises:
            IncompleteWaveError: its rows do not add up.
            FencedError: a newer attempt has taken over.
            CommitError: a part is not as described, an earlier wave is missing, or the store keeps refusing.
        """
        result.check()
        parts = {bucket.bucket: bucket.part for bucket in result.buckets if bucket.part}
        bad = [bucket.quarantine for bucket in result.buckets if bucket.quarantine]
        for part in parts.values():
            check_part(self.table, part)
        for part in bad:
            check_part(self.quarantine, part)
        return self._until_accepted(lambda: self._decide(result.wave, parts, bad), f"wave {result.wave}")

    def _until_accepted(self, decide: Callable[[], bool], what: str) -> bool:
        for attempt in range(_TRIES):
            try:
                return decide()
            except (DeltaError, OSError) as error:
                refused = error
                log.warning("commit refused", extra={"fields": {"what": what, "error": str(error)}})
                time.sleep(0.1 * 2**attempt)
        raise CommitError(f"{what} was refused {_TRIES} times ({refused}); run the job again") from refused

    def _decide(self, wave: int, parts: Mapping[int, Part], bad: Sequence[Part]) -> bool:
        table = _load(self.table)
        done = waves_done(table, self.epoch.plan)
        if done > wave:
            return False
        if done < wave:
            raise CommitError(f"wave {wave} is next but the table has {done} waves; run the job again")
        self._commit_quarantine(wave, bad)
        adds = [_add(part, {"bucket": str(bucket)}) for bucket, part in parts.items()]
        self.epoch.check()
        self._write(table, adds, wave, ["bucket"])
        return True

    def _commit_quarantine(self, wave: int, bad: Sequence[Part]) -> None:
        """Make the committed bad rows of the wave those of this attempt, whatever an earlier one left."""
        table = _load(self.quarantine)
        values: dict[str, str | None] = dict(zip(PARTITION, (self.epoch.plan, str(wave)), strict=True))
        before = set(committed_files(table, self.epoch.plan, wave))
        now = int(time.time() * 1000)
        removed = sorted(before - {part.path for part in bad})
        actions: list[AddAction | RemoveAction] = [RemoveAction(path, True, now, None, values) for path in removed]
        actions += [_add(part, values) for part in bad if part.path not in before]
        if not actions and not before:
            return
        # Also without a change the transaction is written: it makes the handle of an older attempt stale.
        self.epoch.check()
        self._write(table, actions, wave, list(PARTITION))

    def _write(
        self, table: DeltaTable, actions: Sequence[AddAction | RemoveAction], wave: int, partition_by: list[str]
    ) -> None:
        properties = CommitProperties(
            app_transactions=[Transaction(self.epoch.plan, wave, None)],
            custom_metadata={"lsr_prod.epoch": str(self.epoch.number)},
        )
        table.create_write_transaction(
            list(actions),
            mode="append",
            schema=table.schema(),
            partition_by=partition_by,
            commit_properties=properties,
        )


def _load(store: Store) -> DeltaTable:
    return DeltaTable(store.location, storage_options=store.delta_options)


def _add(part: Part, partition_values: Mapping[str, str | None]) -> AddAction:
    return AddAction(
        path=part.path,
        size=part.size,
        partition_values=dict(partition_values),
        modification_time=int(time.time() * 1000),
        data_change=True,
        stats=part.stats,
    )
