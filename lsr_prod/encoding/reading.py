"""Read slices of the source into tables of rows, with a row count of every read task for every cell.

A wave of a first plan has its own slices. A new file of an increment has rows of every wave, and is read once: read
tasks split their rows by wave, and Ray's object store, which spills to disk, holds them until the wave is committed.
They are not shuffled all at once: a shuffle makes an object for each pair of read task and block, and its blocks would
have cells of several waves.

The read tasks of an increment have no retries: a lost row is an error, and the wave is read again from the files,
without its finished cells. With retries, Ray's tasks for lost blocks of a shuffle can hold the cores that the tasks
below them need (observed: a cluster with one core left waited forever). The read tasks of a first plan still have
retries, because Ray Data has deprecated the argument that switches them off.
"""

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import ray

from lsr_prod.corpus.read import Reader
from lsr_prod.corpus.rows import row_schema
from lsr_prod.corpus.slices import Slice
from lsr_prod.encoding.prepare import Work
from lsr_prod.encoding.row_counts import with_row_counts

__all__ = ["NewRows", "rows_of_slices"]

log = logging.getLogger(__name__)

# Rows of one read task for one wave, in source bytes. Ray would keep objects of less than 100 KB on the driver.
_SHARE_BYTES = 500_000


def rows_of_slices(work: Work, wave: int, todo: Sequence[int]) -> tuple[Any, int]:
    """Return a dataset that reads the rows of a wave of a first plan.

    Args:
        work: the checked job.
        wave: number of the wave.
        todo: its cells to encode.

    Returns:
        The dataset, and its number of read tasks.
    """
    keep = None if len(todo) == work.plan.cells else frozenset(todo)
    read = _ReadSlices(Reader(work.source, work.plan.cells, work.table.options, keep), tuple(todo))
    groups = _groups(work.plan.wave(wave), work.encode.slice_megabytes * 1_000_000)
    items = [{"slices": json.dumps([piece.to_json() for piece in group])} for group in groups]
    tasks = ray.data.from_items(items, override_num_blocks=len(items))
    return tasks.map_batches(read, batch_size=1, batch_format="pyarrow"), len(items)


@dataclass(slots=True)
class NewRows:
    """Rows of the new files of an increment, read when the first wave needs them.

    Attributes:
        work: the checked job.
    """

    work: Work
    _tables: dict[int, list[Any]] = field(default_factory=dict)  # wave -> a reference per read task

    def of_wave(self, wave: int, todo: Sequence[int]) -> tuple[Any, int]:
        """Return a dataset of the rows of a wave, and the number of read tasks; rows of earlier waves are released.

        Args:
            wave: number of the wave; every earlier wave is committed.
            todo: its cells to encode.
        """
        if wave not in self._tables:
            self._tables = self._read(range(wave, self.work.plan.waves))
        for committed in [number for number in self._tables if number < wave]:
            del self._tables[committed]
        tables = self._tables[wave]
        rows: Any = ray.data.from_arrow_refs(tables)
        if len(todo) < len(self.work.plan.cells_of(wave)):
            rows = rows.map_batches(_OnlyCells(tuple(todo)), batch_size=None, batch_format="pyarrow")
        return rows, len(tables)

    def discard(self) -> None:
        """Release all rows, after some of them were lost with their node: the next wave reads the files again."""
        self._tables.clear()

    def _read(self, waves: range) -> dict[int, list[Any]]:
        plan = self.work.plan
        limit = max(self.work.encode.slice_megabytes * 1_000_000, len(waves) * _SHARE_BYTES)
        # Without a new file there is one task, of no slice: every cell needs a row count, as its rows may be deleted.
        groups = [*_groups(tuple(plan.slices()), limit)] or [[]]
        log.info("reading new files", extra={"fields": {"read_tasks": len(groups), "waves": len(waves)}})
        cells = [plan.cells_of(wave) for wave in waves]
        keep = None if waves.start == 0 else frozenset(cell for some in cells for cell in some)
        reader = ray.put(Reader(self.work.source, plan.cells, self.work.table.options, keep))
        shared_cells = ray.put(cells)
        task: Any = ray.remote(_read_by_wave).options(
            num_returns=len(waves), scheduling_strategy="SPREAD", max_retries=0
        )
        calls = [task.remote(reader, group, shared_cells) for group in groups]
        by_task = [[call] if len(waves) == 1 else call for call in calls]
        return {wave: [tables[place] for tables in by_task] for place, wave in enumerate(waves)}


def _read_by_wave(reader: Reader, group: Sequence[Slice], cells: Sequence[Sequence[int]]) -> Any:
    """Return a table of rows and row counts for each wave, or the only one.

    Args:
        reader: of the plan.
        group: slices to read.
        cells: the cells of each wave.
    """
    schema = row_schema(reader.source.stored_fields)
    rows = pa.concat_tables([schema.empty_table(), *(table for piece in group for table in reader.read(piece))])
    wave_of = np.full(reader.cells, -1)
    for place, some in enumerate(cells):
        wave_of[list(some)] = place
    places = wave_of[rows["cell"].to_numpy()]
    tables = []
    for place, some in enumerate(cells):
        mine = rows.filter(pa.array(places == place))
        tables.append(pa.concat_tables(with_row_counts([mine], some, schema)))
    return tables if len(tables) > 1 else tables[0]


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


@dataclass(frozen=True, slots=True)
class _OnlyCells:
    """Function that keeps the rows and row counts of some cells."""

    cells: tuple[int, ...]

    def __call__(self, rows: pa.Table) -> pa.Table:
        return rows.filter(pc.is_in(rows["cell"], value_set=pa.array(self.cells, pa.int32())))
