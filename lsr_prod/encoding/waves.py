"""Run a wave: Ray Data reads and validates slices and groups rows by cell, then the pool encodes the cells.

Encoding starts after the shuffle has finished. The shuffle is a barrier anyway, and actors that hold every core while
tasks of the shuffle wait for one would cause a deadlock (observed on one and on two cores).
"""

import json
import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import ray
from ray.exceptions import RayError

from lsr_prod.cluster.data import data_settings
from lsr_prod.cluster.errors import describe, our_error
from lsr_prod.corpus.read import Reader
from lsr_prod.corpus.rows import row_schema
from lsr_prod.corpus.slices import Slice
from lsr_prod.encoding.cell import WaveTask
from lsr_prod.encoding.commit.markers import finished_cells
from lsr_prod.encoding.pool import EncoderPool
from lsr_prod.encoding.prepare import Work
from lsr_prod.encoding.progress import Progress
from lsr_prod.encoding.results import WaveCosts, WaveResult
from lsr_prod.encoding.row_counts import with_row_counts
from lsr_prod.encoding.table import files_by_bucket
from lsr_prod.errors import EncoderLostError, IncompleteWaveError
from lsr_prod.formats.table import TableProperties
from lsr_prod.inference import Counters
from lsr_prod.tables import open_table

__all__ = ["WaveRunner"]

log = logging.getLogger(__name__)

_ATTEMPTS = 4
_TASKS_PER_ACTOR = 4  # a few blocks per actor are enough to keep all actors busy
_BLOCK_BYTES = 64_000_000  # source bytes of a block, about: an actor has two of them

# The shuffle splits larger partitions, and the rows of a cell would arrive in several blocks (the commit refuses that).
_LARGEST_BLOCK_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class WaveRunner:
    """Runs the waves of a plan.

    Attributes:
        work: the checked job.
        properties: of the sparse table.
        pool: encoder actors.
        progress: shows finished blocks.
    """

    work: Work
    properties: TableProperties
    pool: EncoderPool
    progress: Progress

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
        # Every cell gets row counts, so an increment also visits buckets without new rows: rows may be deleted there.
        groups = [*_groups(plan.wave(wave), self.work.encode.slice_megabytes * 1_000_000)] or [[]]
        blocks = self._read(groups, todo, task.cells) if todo else []
        for result in self.pool.encode(replace(task, read_tasks=len(groups)), blocks):
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
        )

    def _read(self, groups: Sequence[Sequence[Slice]], todo: Sequence[int], cells: int) -> list[Any]:
        """Return references of blocks of rows; all rows of a cell are in one block."""
        keep = None if len(todo) == cells else frozenset(todo)
        read = _ReadSlices(Reader(self.work.source, cells, self.work.table.options, keep), tuple(todo))
        items = [{"slices": json.dumps([piece.to_json() for piece in group])} for group in groups]
        size = sum(piece.size for group in groups for piece in group)
        blocks = min(len(todo), max(_TASKS_PER_ACTOR * self.pool.size.actors, math.ceil(size / _BLOCK_BYTES)))
        with data_settings(target_max_block_size=_LARGEST_BLOCK_BYTES):
            tasks = ray.data.from_items(items, override_num_blocks=len(items))
            rows = tasks.map_batches(read, batch_size=1, batch_format="pyarrow")
            return list(rows.repartition(blocks, keys=["cell"]).materialize().to_arrow_refs())


def _groups(slices: Sequence[Slice], limit: int) -> Iterator[list[Slice]]:
    """Group slices into tasks of about ``limit`` bytes: a task per small file would cost more than the file."""
    group: list[Slice] = []
    size = 0
    for piece in slices:
        if group and size + piece.size > limit:
            yield group
            group, size = [], 0
        group.append(piece)
        size += piece.size
    if group:
        yield group


@dataclass(frozen=True, slots=True)
class _ReadSlices:
    """Function of the read tasks: takes a batch of slices, yields tables of rows and row counts."""

    reader: Reader
    cells: tuple[int, ...]

    def __call__(self, tasks: pa.Table) -> Iterator[pa.Table]:
        schema = row_schema(self.reader.source.stored_fields)
        for task in tasks.to_pylist():
            pieces = [Slice.from_json(fields) for fields in json.loads(task["slices"])]
            tables = (table for piece in pieces for table in self.reader.read(piece))
            yield from with_row_counts(tables, self.cells, schema)
