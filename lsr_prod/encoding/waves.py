"""Open a wave: find its finished cells, start the tasks that read its rows, and keep what becomes of its blocks.

Ray tasks read groups of slices and split their rows by block; the encoder of a block receives its table of every task.
A wave of a first plan has its own slices. A new file of an increment has rows of every wave, and is read once: tasks
split their rows by wave, and Ray's object store, which spills to disk, holds them until the wave is committed; then
tasks split the rows of the wave by block.

No task is repeated by Ray: a lost row is an error, and the wave is tried again from the files, without the cells that
are finished. (Ray's own reconstruction of lost rows needs cores that the waiting tasks hold: observed, a cluster with
one core left waited forever.)
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa
import ray

from lsr_prod import errors, logs
from lsr_prod.cluster.workers import group_by_size
from lsr_prod.corpus.pinned_file import Slice
from lsr_prod.corpus.read import Reader
from lsr_prod.corpus.source_rows import row_schema
from lsr_prod.encoding import node_tasks, prepare
from lsr_prod.encoding.cells.lookup import WaveTask, reusable_results, with_row_counts
from lsr_prod.encoding.commit import committer, markers
from lsr_prod.encoding.results import BlockResult, BusyTime, CellResult, Counts, WaveResult
from lsr_prod.encoding.tables import load_table, sparse_table
from lsr_prod.storage.formats.table_format import TableProperties

log = logs.get_log(__name__)

_BLOCKS_PER_ACTOR = 4  # a few are enough to keep all actors busy
_BLOCK_BYTES = 64_000_000  # source bytes of a block, about: an actor has two of them
# Rows of one read task for one wave, in source bytes. Ray would keep objects of less than 100 KB on the driver.
_SHARE_BYTES = 500_000


@dataclass(frozen=True, slots=True)
class BlockRows:
    """Rows of a wave, by block."""

    tables: dict[int, tuple[Any, ...]]  # block -> references of its tables, one per read task (``rows.row_schema``)
    tasks: int  # number of read tasks; each sends every cell a row count


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
            raise errors.IncompleteWaveError(
                f"wave {self.number}: {len(missing)} cells, the first {min(missing)}, did not arrive at the encoders; "
                "nothing was committed, run the job again"
            )
        return WaveResult(self.number, tuple(self.results[cell] for cell in self.cells))


@dataclass(slots=True)
class WaveReader:
    """Starts the read tasks of waves."""

    work: prepare.Work  # the checked job
    tasks: node_tasks.NodeTasks  # starts tasks beside the encoders
    _new: dict[int, tuple[Any, ...]] = field(default_factory=dict)  # wave of an increment -> a reference per read task

    def read(self, wave: int, blocks: Mapping[int, Sequence[int]]) -> BlockRows:
        """Start reading the rows of a wave.

        Returns:
            References of tables, when the last read task has been started.
        """
        plan = self.work.plan
        if plan.base is None or plan.waves == 1:
            # Without a slice there is one task: every cell needs a row count, as its rows may be deleted.
            groups = [*group_by_size(plan.wave(wave), attrgetter("size"), plan.slice_bytes)] or [[]]
            return self._read_slices(groups, blocks)
        if wave not in self._new:
            self._new = self._read_all(range(wave, plan.waves))
        shared = ray.put([tuple(some) for some in blocks.values()])
        calls = [(table, shared, plan.cells) for table in self._new[wave]]
        return _by_block(self.tasks.start(_split, calls, len(blocks)), tuple(blocks))

    def discard(self) -> None:
        """Release the rows of new files, after some were lost with their node: the next wave reads the files again."""
        self._new.clear()

    def release(self, wave: int) -> None:
        """Release the rows of a wave that is committed."""
        self._new.pop(wave, None)

    def _read_slices(self, groups: Sequence[Sequence[Slice]], blocks: Mapping[int, Sequence[int]]) -> BlockRows:
        work, cells = self.work, [tuple(some) for some in blocks.values()]
        todo = frozenset(cell for some in cells for cell in some)
        keep = None if len(todo) == work.plan.cells else todo
        reader = ray.put(Reader(work.source, work.plan.cells, work.table.options, keep))
        shared = ray.put(cells)
        calls = [(reader, group, shared) for group in groups]
        return _by_block(self.tasks.start(_read_slices, calls, len(cells)), tuple(blocks))

    def _read_all(self, waves: range) -> dict[int, tuple[Any, ...]]:
        """Read every new file once and split its rows by wave."""
        plan = self.work.plan
        limit = max(plan.slice_bytes, len(waves) * _SHARE_BYTES)
        groups = [*group_by_size(tuple(plan.slices()), attrgetter("size"), limit)] or [[]]
        log.info("reading new files", extra={"fields": {"read_tasks": len(groups), "waves": len(waves)}})
        return self._read_slices(groups, {wave: plan.cells_of(wave) for wave in waves}).tables


@dataclass(frozen=True, slots=True)
class WaveOpener:
    """Opens the waves of a plan."""

    work: prepare.Work  # the checked job
    properties: TableProperties  # of the sparse table
    reader: WaveReader  # reads rows
    actors: int  # encoder actors when the job began

    def open(self, wave: int, earlier: Mapping[int, Mapping[int, CellResult]]) -> OpenWave:
        """Open a wave and start reading its rows."""
        plan, task = self.work.plan, self._task(wave)
        cells = plan.cells_of(wave)
        reused = reusable_results(task, cells, earlier, partial(markers.read_markers_on_workers, self.reader.tasks))
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
            committed=sparse_table.committed_files(table),
            removed=plan.removed,
            present=None if plan.base is None else plan.present(),
            on_duplicate=self.work.encode.on_duplicate,
            done=committer.waves_done(table, plan.digest),
        )


def blocks_of_cells(cells: Sequence[int], buckets: int, blocks: int) -> tuple[tuple[int, ...], ...]:
    """Group the cells of a wave into blocks of about equal size.

    Cells of one bucket are neighbors: a block looks up the ids of few buckets, and has whole buckets if there are at
    least as many buckets as blocks.
    """
    by_bucket: dict[int, list[int]] = {}
    for cell in cells:
        by_bucket.setdefault(cell % buckets, []).append(cell)
    units = [tuple(sorted(some)) for _, some in sorted(by_bucket.items())]
    if blocks > len(units):
        units = [(cell,) for some in units for cell in some]
    count = min(blocks, len(units))
    bounds = [len(units) * block // count for block in range(count + 1)] if count else []
    return tuple(tuple(cell for some in units[start:end] for cell in some) for start, end in pairwise(bounds))


def _by_block(tables: Sequence[Sequence[Any]], blocks: Sequence[int]) -> BlockRows:
    return BlockRows({block: tuple(some[place] for some in tables) for place, block in enumerate(blocks)}, len(tables))


def _read_slices(reader: Reader, group: Sequence[Slice], cells: Sequence[Sequence[int]]) -> list[pa.Table]:
    """Return a table of rows and row counts for each group of cells."""
    schema = row_schema(reader.source.stored_fields, reader.source.types)
    rows = pa.concat_tables([schema.empty_table(), *(table for piece in group for table in reader.read(piece))])
    return [
        pa.concat_tables(with_row_counts([mine], some, schema))
        for mine, some in zip(_split(rows, cells, reader.cells), cells, strict=True)
    ]


def _split(rows: pa.Table, cells: Sequence[Sequence[int]], all_cells: int) -> list[pa.Table]:
    """Return the rows and row counts of each group of cells."""
    group_of = np.full(all_cells, -1)
    for group, some in enumerate(cells):
        group_of[list(some)] = group
    groups = group_of[rows["cell"].to_numpy()]
    return [rows.filter(pa.array(groups == group)) for group in range(len(cells))]
