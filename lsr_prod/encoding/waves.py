"""Open a wave: find its finished cells, start the tasks that read its rows, and keep what becomes of its blocks."""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import ray

from lsr_prod.encoding.cells.lookup import WaveTask, reusable_results
from lsr_prod.encoding.commit.committer import waves_done
from lsr_prod.encoding.commit.on_workers import read_markers_on_workers
from lsr_prod.encoding.prepare import Work
from lsr_prod.encoding.reading import BlockRows, WaveReader, blocks_of_cells
from lsr_prod.encoding.results import BlockResult, BusyTime, CellResult, Counts, WaveResult
from lsr_prod.encoding.table import committed_files
from lsr_prod.errors import IncompleteWaveError
from lsr_prod.formats.table import TableProperties
from lsr_prod.tables import load_table

_BLOCKS_PER_ACTOR = 4  # a few are enough to keep all actors busy
_BLOCK_BYTES = 64_000_000  # source bytes of a block, about: an actor has two of them


@dataclass(slots=True)
class OpenWave:
    """A wave that is read and encoded."""

    task: WaveTask  # description for the actors
    shared: Any  # reference of it
    cells: tuple[int, ...]  # all cells of the wave
    # block -> its cells that were not finished when the wave was opened; without empty blocks
    blocks: Mapping[int, tuple[int, ...]]
    rows: BlockRows  # rows of the blocks
    reused: Mapping[int, CellResult]  # finished cells of earlier attempts
    results: dict[int, CellResult] = field(init=False)  # cell -> result
    waiting: list[int] = field(init=False)  # blocks that no actor has got yet
    running: set[int] = field(default_factory=set)  # blocks that were submitted
    work: Counts = field(default_factory=Counts)  # work of the encoders since the wave was opened
    busy: BusyTime = field(default_factory=BusyTime)  # their working time

    def __post_init__(self) -> None:
        self.results, self.waiting = dict(self.reused), list(self.blocks)

    @property
    def number(self) -> int:
        """Number of the wave."""
        return self.task.wave

    @property
    def is_encoded(self) -> bool:
        """Whether every block is finished."""
        return not self.waiting and not self.running

    def has_finished(self, block: int) -> bool:
        """Return whether every cell of a block is finished."""
        return block not in self.running and block not in self.waiting

    def take(self, block: int, result: BlockResult) -> None:
        """Add the result of a block."""
        self.running.discard(block)
        self.results.update({cell.cell: cell for cell in result.cells})
        self.work += result.counts
        self.busy += BusyTime.of_block(result.model_seconds, time.monotonic())

    def close(self) -> WaveResult:
        """Return the result of the wave."""
        missing = {*self.cells} - self.results.keys()
        if missing:
            raise IncompleteWaveError(
                f"wave {self.number}: {len(missing)} cells, the first {min(missing)}, did not arrive at the encoders; "
                "nothing was committed, run the job again"
            )
        return WaveResult(self.number, tuple(self.results[cell] for cell in self.cells))


@dataclass(frozen=True, slots=True)
class WaveOpener:
    """Opens the waves of a plan."""

    work: Work  # the checked job
    properties: TableProperties  # of the sparse table
    reader: WaveReader  # reads rows
    actors: int  # encoder actors when the job began

    def open(self, wave: int, earlier: Mapping[int, Mapping[int, CellResult]]) -> OpenWave:
        """Open a wave and start reading its rows."""
        plan, task = self.work.plan, self._task(wave)
        cells = plan.cells_of(wave)
        reused = reusable_results(task, cells, earlier, partial(read_markers_on_workers, self.reader.tasks))
        count = max(_BLOCKS_PER_ACTOR * self.actors, math.ceil(plan.largest_wave_bytes / _BLOCK_BYTES))
        blocks = {}
        for block, some in enumerate(blocks_of_cells(cells, self.properties.buckets, count)):
            if todo := tuple(cell for cell in some if cell not in reused):
                blocks[block] = todo
        rows = self.reader.read(wave, blocks) if blocks else BlockRows({}, 0)
        task = replace(task, read_tasks=rows.tasks)
        return OpenWave(task, ray.put(task), cells, blocks, rows, reused)

    def _task(self, wave: int) -> WaveTask:
        table, plan = load_table(self.work.table), self.work.plan
        return WaveTask(
            plan=plan.digest,
            wave=wave,
            cells=plan.cells,
            table=self.work.table,
            quarantine=self.work.quarantine,
            properties=self.properties,
            committed=committed_files(table),
            removed=plan.removed,
            present=None if plan.base is None else plan.present(),
            on_duplicate=self.work.encode.on_duplicate,
            done=waves_done(table, plan.digest),
        )
