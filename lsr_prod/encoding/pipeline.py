"""The pipeline of waves: while a wave is encoded, the next one is read and the one before is committed.

Waves are committed in order, but a block of the next wave may be encoded before the current wave is complete:

- In a first plan, when the cells of the current wave with the same numbers are finished. Rows with equal ids have equal
  cell numbers, so duplicates across the two waves are found in them.
- In an increment, at any time. Its waves have disjoint buckets, so no id is in two of them.
- With ``encode.on_duplicate: last`` in a first plan, only after the current wave is committed, because a later row
  replaces a document of an earlier wave.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

import pyarrow as pa
from ray.exceptions import RayError

from lsr_prod import errors, logs
from lsr_prod.cluster.tasks import describe, our_error, run_tasks
from lsr_prod.encoding.actors.pool import BlockCall, EncoderPool
from lsr_prod.encoding.cells.lookup import followed_outputs
from lsr_prod.encoding.progress import Progress
from lsr_prod.encoding.results import BlockResult, BusyTime, CellResult, Counts, WaveResult
from lsr_prod.encoding.tables import Table, TableFile, live_rows, part
from lsr_prod.encoding.waves import OpenWave, WaveOpener
from lsr_prod.storage import Store

log = logs.get_log(__name__)
_OPEN_WAVES = 2  # with rows in the object store: one is encoded, one is read
_CLOSED_WAVES = 2  # that wait for their commit
_WAIT_S = 0.5  # for a block, before the pipeline looks at its other parts again
_STARTING_S = 0.05  # the same without a block
_LOST_TRIES = 10  # of a wave: a lost node loses one
_STALE_TRIES = 5
Commit = Callable[[WaveResult], None]
Spend = Callable[[int, Counts, BusyTime], None]
_FILES_PER_TASK = 64  # of a task that digests them


class Pipeline:
    """Encodes and commits the waves of a plan."""

    def __init__(self, opener: WaveOpener, pool: EncoderPool, progress: Progress, commit: Commit, spend: Spend) -> None:
        self._opener, self._pool, self._progress = opener, pool, progress
        self._commit, self._spend = commit, spend
        plan = opener.work.plan
        self._ahead = plan.base is not None or opener.work.encode.on_duplicate != "last"
        self._follows = plan.base is None
        self._opening: Future[OpenWave] | None = None
        self._opened_at = 0  # committed waves when it began: its snapshot has as many, or more
        self._open: dict[int, OpenWave] = {}
        self._closed: dict[int, WaveResult] = {}
        self._committing: Future[None] | None = None
        self._results: dict[int, Mapping[int, CellResult]] = {}  # wave -> its results, until no open wave follows it
        self._failure: errors.LsrError | None = None
        self._lost: dict[int, int] = {}
        self._stale: dict[int, int] = {}

    def run(self, first: int, end: int) -> None:
        """Encode and commit the waves from ``first`` to ``end - 1``.

        A wave that fails because nodes were lost is tried again; finished cells are not encoded again. When a wave
        fails for good, the earlier waves are committed before the error is raised.
        """
        self._next, self._committed, self._end = first, first, end
        with ThreadPoolExecutor(1, "open") as opener, ThreadPoolExecutor(1, "commit") as committer:
            try:
                while self._committed < self._end:
                    self._look_at_commit(committer)
                    self._open_next(opener)
                    self._submit()
                    self._wait()
            finally:
                self._pool.stop()  # the threads may wait for an encoder
        if self._failure is not None:
            raise self._failure

    def _wait(self) -> None:
        if self._pool.unfinished:
            for call, outcome in self._pool.wait(_WAIT_S):
                self._take(call, outcome)
            return
        self._pool.wait(0)  # encoders start, and reading waits for the first one
        background: list[Future[Any]] = [each for each in (self._opening, self._committing) if each]
        wait(background, _STARTING_S, FIRST_COMPLETED)

    def _open_next(self, threads: ThreadPoolExecutor) -> None:
        if self._opening is not None:
            if not self._opening.done():
                return
            opening, self._opening = self._opening, None
            try:
                wave = opening.result()
            except RayError as error:
                self._lose(self._next, error)
                return
            except errors.LsrError as error:
                self._fail(self._next, error)
                return
            self._open[wave.number] = wave
            self._results[wave.number] = wave.results
            self._progress.start_wave(wave.number, len(wave.reused) / len(wave.cells))
            self._next = wave.number + 1
            self._close(wave)
        room = len(self._open) < _OPEN_WAVES and len(self._closed) < _CLOSED_WAVES
        if self._next < self._end and room and (self._ahead or self._next == self._committed):
            so_far = {number: dict(results) for number, results in self._results.items()}
            self._opening = threads.submit(self._opener.open, self._next, so_far)
            self._opened_at = self._committed

    def _submit(self) -> None:
        for wave in list(self._open.values()):
            earlier_waves = [self._open[number] for number in self._open if self._follows and number < wave.number]
            for block in [block for block in wave.waiting if all(one.has_finished(block) for one in earlier_waves)]:
                follows = followed_outputs(wave.task, wave.blocks[block], self._results if self._follows else {})
                wave.waiting.remove(block)
                wave.running.add(block)
                rows = wave.rows.tables.pop(block)  # released when the block is finished
                self._pool.submit(BlockCall(wave.number, block, wave.shared, rows, (follows,)))

    def _take(self, call: BlockCall, outcome: BlockResult | RayError) -> None:
        wave = self._open.get(call.wave)
        if wave is None or call.block not in wave.running:
            return  # the wave was lost meanwhile
        if isinstance(outcome, RayError):
            self._lose(call.wave, outcome)
            return
        wave.take(call.block, outcome)
        self._progress.block(wave.number, len(wave.blocks[call.block]) / len(wave.cells), outcome)
        self._close(wave)

    def _close(self, wave: OpenWave) -> None:
        if not wave.is_encoded:
            return
        try:
            self._closed[wave.number] = wave.close()
        except errors.LsrError as error:
            self._fail(wave.number, error)
            return
        self._spend(wave.number, wave.work, wave.busy)
        del self._open[wave.number]

    def _look_at_commit(self, threads: ThreadPoolExecutor) -> None:
        """Start the next commit when the one before has succeeded."""
        if self._committing is not None:
            if not self._committing.done():
                return
            committing, self._committing = self._committing, None
            try:
                committing.result()
            except errors.StaleWaveError as error:
                self._encode_again(error)
                return
            self._opener.reader.release(self._committed)
            del self._closed[self._committed]
            self._committed += 1
            self._forget()
        if self._committed in self._closed:
            self._committing = threads.submit(self._commit, self._closed[self._committed])

    def _encode_again(self, error: errors.StaleWaveError) -> None:
        """Encode a wave again whose commit was refused, because parts that it replaces were compacted meanwhile."""
        wave = self._committed
        attempt = self._stale[wave] = self._stale.get(wave, 0) + 1
        if attempt == _STALE_TRIES:
            raise error
        log.warning("wave stale", extra={"fields": {"wave": wave, "attempt": attempt, "error": str(error)}})
        self._drop(wave)

    def _lose(self, wave: int, error: RayError) -> None:
        """Try a wave again that lost rows or blocks with a node."""
        ours = our_error(error)
        if ours is not None:
            ours.__cause__ = error
            self._fail(wave, ours)
            return
        attempt = self._lost[wave] = self._lost.get(wave, 0) + 1
        fields = {"wave": wave, "attempt": attempt, "error": str(error).strip().split("\n")[-1]}
        log.warning("wave lost", extra={"fields": fields})
        if attempt == _LOST_TRIES:
            lost = errors.EncoderLostError(
                f"wave {wave} was lost {_LOST_TRIES} times, the last time by {describe(error)}; "
                "look at Ray's logs, then run the job again"
            )
            lost.__cause__ = error
            self._fail(wave, lost)
            return
        self._pool.look_again()
        self._drop(wave)

    def _fail(self, wave: int, error: errors.LsrError) -> None:
        """End before a wave: the earlier waves are still encoded and committed."""
        log.error("wave failed", extra={"fields": {"wave": wave, "error": str(error)}})
        self._drop(wave)
        self._end, self._failure = wave, error

    def _drop(self, wave: int) -> None:
        """Forget what is known of this and of later waves; their finished cells have markers."""
        if self._opening is not None:
            self._opener.reader.tasks.interrupt()
            self._opening.exception()  # wait: it reads with the same reader
            self._opening = None
        for number in [number for number in self._open if number >= wave]:
            self._spend(number, self._open[number].work, self._open[number].busy)
        self._pool.cancel(wave)
        self._progress.drop(wave)
        self._opener.reader.discard()
        for known in (self._open, self._closed, self._results):
            for number in [number for number in known if number >= wave]:
                del known[number]
        self._next = wave

    def _forget(self) -> None:
        """Release the results of waves that every open wave sees in its snapshot."""
        oldest = min([self._committed, *(wave.task.done for wave in self._open.values())])
        if self._opening is not None:
            oldest = min(oldest, self._opened_at)
        for number in [number for number in self._results if number < oldest]:
            del self._results[number]


def table_digest_on_ray(table: Table) -> str | None:
    """Return the ``table.table_digest`` of a snapshot, if no part has deleted rows.

    The digests of deleted rows are not known without reading their parts, and a job that changes a hundredth of the
    rows must not read all of them: ``table.table_digest`` does. Ray tasks read parts without a digest in their names,
    which another program wrote.

    Returns:
        64 hex digits; None: a part has deleted rows.
    """
    files = table.file_table()
    if files["deleted"].null_count < files.num_rows:
        return None
    named = [part.digest_in_name(path) for path in files["path"].to_pylist()]
    others = live_rows.to_files(files.filter(pa.array([digest is None for digest in named], pa.bool_())))
    groups = [others[start : start + _FILES_PER_TASK] for start in range(0, len(others), _FILES_PER_TASK)]
    sums = run_tasks(_sum_of, [(table.store, group) for group in groups], task="digesting the table")
    return part.combine_digests([*(digest for digest in named if digest is not None), *(one for _, one in sums)])


def _sum_of(store: Store, files: Sequence[TableFile]) -> int:
    return sum(live_rows.part_digest(store, file) for file in files)
