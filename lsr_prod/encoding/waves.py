"""Run a wave: Ray reads and validates its rows and groups them by cell, then the pool encodes the cells.

Encoding starts after the shuffle has finished. The shuffle is a barrier anyway, and actors that hold every core while
tasks of the shuffle wait for one would cause a deadlock (observed on one and on two cores).
"""

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import ray
from ray.exceptions import RayError

from lsr_prod.cluster.data import data_settings
from lsr_prod.cluster.errors import describe, our_error
from lsr_prod.encoding.cell import WaveTask, all_displaced, displaced_parts, may_displace
from lsr_prod.encoding.commit.markers import finished_cells
from lsr_prod.encoding.pool import EncoderPool
from lsr_prod.encoding.prepare import Work
from lsr_prod.encoding.progress import Progress
from lsr_prod.encoding.reading import NewRows, rows_of_slices
from lsr_prod.encoding.results import WaveCosts, WaveResult
from lsr_prod.encoding.table import files_by_bucket
from lsr_prod.errors import EncoderLostError, IncompleteWaveError
from lsr_prod.formats.table import TableProperties
from lsr_prod.inference import Counters
from lsr_prod.tables import open_table

__all__ = ["WaveRunner"]

log = logging.getLogger(__name__)

_ATTEMPTS = 10  # of a wave; the loss of a node ends one
_TASKS_PER_ACTOR = 4  # a few blocks per actor are enough to keep all actors busy
_BLOCK_BYTES = 64_000_000  # source bytes of a block, about: an actor has two of them

# Larger blocks might be split, and the rows of a cell would arrive in several blocks (the commit refuses that).
_LARGEST_BLOCK_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class WaveRunner:
    """Runs the waves of a plan.

    Attributes:
        work: the checked job.
        properties: of the sparse table.
        pool: encoder actors.
        progress: shows finished blocks.
        new_rows: rows of the new files of an increment.
    """

    work: Work
    properties: TableProperties
    pool: EncoderPool
    progress: Progress
    new_rows: NewRows

    def run(self, wave: int) -> tuple[WaveResult, WaveCosts]:
        """Encode a wave: write its parts to the folders of the tables, without committing them.

        A wave that fails because nodes were lost is tried again; finished cells are not encoded again.

        Raises:
            IncompleteWaveError: rows were lost between reading and encoding.
            EncoderLostError: every attempt at a block or at the wave lost its actors or nodes.
            SourceError: a file has changed since the plan pinned it.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return self._attempt(wave)
            except RayError as error:
                ours = our_error(error)
                if ours is not None:
                    raise ours from error
                lost = error
                fields = {"wave": wave, "attempt": attempt, "error": str(error).strip().split("\n")[-1]}
                log.warning("wave lost", extra={"fields": fields})
                self.new_rows.discard()
        raise EncoderLostError(
            f"wave {wave} was lost {_ATTEMPTS} times, the last time by {describe(lost)}; "
            "look at Ray's logs, then run the job again"
        ) from lost

    def _attempt(self, wave: int) -> tuple[WaveResult, WaveCosts]:
        plan, task = self.work.plan, self._task(wave)
        cells = plan.cells_of(wave)
        finished = finished_cells(task.table, task.quarantine, task.plan, wave)
        # A cell that replaces a part which was compacted in the meantime is encoded again.
        done = {cell: result for cell, result in finished.items() if task.has(result.removes)}
        todo = [cell for cell in cells if cell not in done]
        self.progress.start_wave(wave)
        results = [done[cell] for cell in cells if cell in done]
        encoded, counters = 0, Counters()
        if todo:
            blocks, tasks = self._read(wave, todo)
            if may_displace(task):
                task = replace(task, displaced=all_displaced(_displaced(task, blocks), results))
            for result in self.pool.encode(replace(task, read_tasks=tasks), blocks):
                results += result.cells
                encoded += sum(cell.encoded for cell in result.cells if not cell.reused)
                counters += result.counters
                self.progress.block(1 / len(blocks))
        missing = {*cells} - {result.cell for result in results}
        if missing:
            raise IncompleteWaveError(
                f"wave {wave}: {len(missing)} cells, the first {min(missing)}, did not arrive at the encoders; "
                "nothing was committed, run the job again"
            )
        return WaveResult(wave, tuple(results)), WaveCosts(encoded, len(done), counters)

    def _read(self, wave: int, todo: Sequence[int]) -> tuple[list[Any], int]:
        """Return references of blocks of rows, and the number of read tasks; all rows of a cell are in one block."""
        work, actors = self.work, self.pool.size.actors
        blocks = max(_TASKS_PER_ACTOR * actors, math.ceil(work.plan.largest_wave_bytes / _BLOCK_BYTES))
        with data_settings(target_max_block_size=_LARGEST_BLOCK_BYTES):
            read = partial(rows_of_slices, work) if work.plan.base is None else self.new_rows.of_wave
            rows, tasks = read(wave, todo)
            shuffled = rows.repartition(min(len(todo), blocks), keys=["cell"])
            return list(shuffled.materialize().to_arrow_refs()), tasks

    def _task(self, wave: int) -> WaveTask:
        table = open_table(self.work.table)
        assert table is not None
        return WaveTask(
            plan=self.work.plan.digest,
            wave=wave,
            cells=self.work.plan.cells,
            table=self.work.table,
            quarantine=self.work.quarantine,
            properties=self.properties,
            committed=files_by_bucket(table),
            removed=self.work.plan.removed,
            present=None if self.work.plan.base is None else self.work.plan.present(),
            on_duplicate=self.work.encode.on_duplicate,
        )


def _displaced(task: WaveTask, blocks: Sequence[Any]) -> list[Mapping[int, Sequence[str]]]:
    """Look up the rows of the blocks in the table, on workers."""
    look_up: Any = ray.remote(displaced_parts)
    shared = ray.put(task)
    found: list[Mapping[int, Sequence[str]]] = ray.get([look_up.remote(shared, block) for block in blocks])
    return found
