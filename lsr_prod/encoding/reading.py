"""Read slices of the source into tables of rows, one table per block of cells, with row counts of every read task.

Ray tasks read groups of slices and split their rows by block; the encoder of a block receives its table of every task.
A wave of a first plan has its own slices. A new file of an increment has rows of every wave, and is read once: tasks
split their rows by wave, and Ray's object store, which spills to disk, holds them until the wave is committed; then
tasks split the rows of the wave by block.

No task is repeated by Ray: a lost row is an error, and the wave is tried again from the files, without the cells that
are finished. (Ray's own reconstruction of lost rows needs cores that the waiting tasks hold: observed, a cluster with
one core left waited forever.)
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import ray

from lsr_prod.cluster.workers import group_by_size
from lsr_prod.corpus.read import Reader
from lsr_prod.corpus.rows import row_schema
from lsr_prod.corpus.slices import Slice
from lsr_prod.encoding.cells.lookup import with_row_counts
from lsr_prod.encoding.node_tasks import NodeTasks
from lsr_prod.encoding.prepare import Work
from lsr_prod.logs import get_log

log = get_log(__name__)

# Rows of one read task for one wave, in source bytes. Ray would keep objects of less than 100 KB on the driver.
_SHARE_BYTES = 500_000


@dataclass(frozen=True, slots=True)
class BlockRows:
    """Rows of a wave, by block."""

    tables: dict[int, tuple[Any, ...]]  # block -> references of its tables, one per read task (``rows.row_schema``)
    tasks: int  # number of read tasks; each sends every cell a row count


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


@dataclass(slots=True)
class WaveReader:
    """Starts the read tasks of waves."""

    work: Work  # the checked job
    tasks: NodeTasks  # starts tasks beside the encoders
    _new: dict[int, list[Any]] = field(default_factory=dict)  # wave of an increment -> a reference per read task

    def read(self, wave: int, blocks: Mapping[int, Sequence[int]]) -> BlockRows:
        """Start reading the rows of a wave.

        Returns:
            References of tables, when the last read task has been started.
        """
        plan = self.work.plan
        if plan.base is None or plan.waves == 1:
            limit = plan.slice_bytes
            return self._read_slices(group_by_size(plan.wave(wave), _size, limit), blocks)
        return self._read_new(wave, blocks)

    def discard(self) -> None:
        """Release the rows of new files, after some were lost with their node: the next wave reads the files again."""
        self._new.clear()

    def release(self, wave: int) -> None:
        """Release the rows of a wave that is committed."""
        self._new.pop(wave, None)

    def _read_slices(self, groups: Iterator[list[Slice]], blocks: Mapping[int, Sequence[int]]) -> BlockRows:
        # Without a slice there is one task: every cell needs a row count, as its rows may be deleted.
        found = [*groups] or [[]]
        cells = [tuple(some) for some in blocks.values()]
        todo = frozenset(cell for some in cells for cell in some)
        reader = ray.put(self._reader(None if len(todo) == self.work.plan.cells else todo))
        shared = ray.put(cells)
        calls = [(reader, group, shared) for group in found]
        return _by_block(self.tasks.start(_read_slices, calls, len(cells)), tuple(blocks))

    def _read_new(self, wave: int, blocks: Mapping[int, Sequence[int]]) -> BlockRows:
        if wave not in self._new:
            self._new = self._read_all(range(wave, self.work.plan.waves))
        shared = ray.put([tuple(some) for some in blocks.values()])
        calls = [(table, shared, self.work.plan.cells) for table in self._new[wave]]
        return _by_block(self.tasks.start(_split_table, calls, len(blocks)), tuple(blocks))

    def _read_all(self, waves: range) -> dict[int, list[Any]]:
        """Read every new file once and split its rows by wave."""
        plan = self.work.plan
        limit = max(plan.slice_bytes, len(waves) * _SHARE_BYTES)
        groups = [*group_by_size(tuple(plan.slices()), _size, limit)] or [[]]
        log.info("reading new files", extra={"fields": {"read_tasks": len(groups), "waves": len(waves)}})
        by_wave = {wave: plan.cells_of(wave) for wave in waves}
        cells = frozenset(cell for some in by_wave.values() for cell in some)
        reader = ray.put(self._reader(None if len(cells) == plan.cells else cells))
        shared = ray.put(list(by_wave.values()))
        calls = [(reader, group, shared) for group in groups]
        rows = _by_block(self.tasks.start(_read_slices, calls, len(waves)), tuple(waves))
        return {wave: list(tables) for wave, tables in rows.tables.items()}

    def _reader(self, keep: frozenset[int] | None) -> Reader:
        return Reader(self.work.source, self.work.plan.cells, self.work.table.options, keep)


def _by_block(tables: Sequence[Sequence[Any]], blocks: Sequence[int]) -> BlockRows:
    by_block = {block: tuple(some[place] for some in tables) for place, block in enumerate(blocks)}
    return BlockRows(by_block, len(tables))


def _read_slices(reader: Reader, group: Sequence[Slice], cells: Sequence[Sequence[int]]) -> list[pa.Table]:
    """Return a table of rows and row counts for each group of cells."""
    schema = row_schema(reader.source.stored_fields)
    rows = pa.concat_tables([schema.empty_table(), *(table for piece in group for table in reader.read(piece))])
    return [
        pa.concat_tables(with_row_counts([mine], some, schema))
        for mine, some in zip(_split(rows, cells, reader.cells), cells, strict=True)
    ]


def _split_table(rows: pa.Table, cells: Sequence[Sequence[int]], all_cells: int) -> list[pa.Table]:
    """Return the rows and row counts of each group of cells."""
    return [*_split(rows, cells, all_cells)]


def _split(rows: pa.Table, cells: Sequence[Sequence[int]], all_cells: int) -> Iterator[pa.Table]:
    group_of = np.full(all_cells, -1)
    for group, some in enumerate(cells):
        group_of[list(some)] = group
    groups = group_of[rows["cell"].to_numpy()]
    for group in range(len(cells)):
        yield rows.filter(pa.array(groups == group))


def _size(piece: Slice) -> int:
    return piece.size
