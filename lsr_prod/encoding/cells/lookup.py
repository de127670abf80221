"""Look up the ids of a block of rows in the parts of their buckets: once for all cells of a bucket.

A wave may be encoded before an earlier wave of the same plan is committed. Then the parts of the earlier wave are
looked up too: those of the same cell, which have every row of the earlier wave whose id hashes to it.

Row counts: every read task reports its number of rows for every cell, and a cell is encoded only if all arrived.

The counts travel as rows of the cell. So a lost block, a cell cut in two or a lost output of a task between reading and
encoding is detected before anything is written.

Results of a cell that another encoding of the cell may use or has to look up.

A cell may be encoded before the result of an earlier wave is committed. Its result then depends on the documents of
that result, and names its parts. It is used only while the earlier wave has these parts: an attempt that encodes the
earlier wave again may have other documents, because the model failed on others.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lsr_prod.encoding.cells.known_rows import Known, Rule, SourceOrder, choose_rows, find_known
from lsr_prod.encoding.commit.markers import ReadMarkers, finished_cells, read_markers
from lsr_prod.encoding.results import CellOutput, CellResult
from lsr_prod.encoding.tables import TableFile, open_table, quarantine_rows, sparse_table
from lsr_prod.encoding.tables.deletions import Deletion
from lsr_prod.errors import IncompleteWaveError
from lsr_prod.storage import Store
from lsr_prod.storage.formats.table_format import TableProperties

ROW_COUNT = "row_count"
"""``reason`` of a row that is a row count; its ``position`` is the number of rows. Never written to a table."""


def with_row_counts(tables: Iterable[pa.Table], cells: Iterable[int], schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield the tables of a read task, then a row count for each of ``cells``."""
    counts: Counter[int] = Counter()
    for table in tables:
        for group in pc.value_counts(table["cell"]).to_pylist():
            counts[group["values"]] += group["counts"]
        yield table
    row_counts = [{"cell": cell, "reason": ROW_COUNT, "position": counts.pop(cell, 0)} for cell in cells]
    assert not counts, "a row of a cell that is not encoded"
    yield pa.Table.from_pylist(row_counts, schema=schema)


def check_row_counts(rows: pa.Table, tasks: int, what: str) -> pa.Table:
    """Return the rows of a cell without its row counts."""
    are_counts = pc.equal(pc.fill_null(rows["reason"], ""), ROW_COUNT)
    counts = rows["position"].filter(are_counts)
    expected, arrived = pc.sum(counts).as_py() or 0, rows.num_rows - len(counts)
    if len(counts) != tasks or expected != arrived:
        raise IncompleteWaveError(
            f"{what}: {arrived} of {expected} rows and {len(counts)} of {tasks} row counts arrived; nothing "
            "was committed, run the job again"
        )
    return rows.filter(pc.invert(are_counts))


@dataclass(frozen=True, slots=True)
class WaveTask:
    """Description of a wave for the actors."""

    plan: str  # digest of the plan
    wave: int  # number of the wave
    cells: int  # number of cells that ids are hashed to
    table: Store  # the sparse table's folder
    quarantine: Store  # the quarantine table's folder
    properties: TableProperties  # of the sparse table
    committed: pa.Table  # parts of the snapshot that the wave is based on (``table.committed_files``)
    removed: frozenset[int] = frozenset()  # keys of the removed source files, whose rows are deleted
    present: pa.Array | None = None  # int64, keys of the current source files in their order; only for an increment
    on_duplicate: Rule = "first"  # which row of an id becomes the document
    read_tasks: int = 1  # tasks that read the wave; each sends every cell a row count
    done: int = 0  # waves of the plan that the snapshot has

    def files_of(self, bucket: int) -> list[TableFile]:
        """Return the committed parts of a bucket."""
        return sparse_table.files_of_bucket(self.committed, bucket)


@dataclass(frozen=True, slots=True)
class CellRows:
    """Rows of a cell, and the committed rows of their ids."""

    cell: int  # number of the cell
    bucket: int  # its bucket
    rows: pa.Table  # all rows (``rows.row_schema``)
    good: pa.Table  # one row of each id, sorted by id
    repeated: pa.Table  # the other rows of these ids
    known: Known  # committed rows of these ids


def look_up_cells(
    task: WaveTask, rows: pa.Table, follows: Mapping[int, Sequence[CellOutput]] | None = None
) -> list[CellRows]:
    """Look up the rows of some cells; every part is opened once for all of them.

    Returns:
        The cells in ascending order.
    """
    by_cell = {}
    for cell in sorted(pc.unique(rows["cell"]).to_pylist()):
        mine = rows.filter(pc.equal(rows["cell"], cell))
        by_cell[cell] = check_row_counts(mine, task.read_tasks, f"wave {task.wave}, cell {cell}")
    buckets = defaultdict(list)
    for cell in by_cell:
        buckets[cell % task.properties.buckets].append(cell)
    found = []
    for bucket, cells in buckets.items():
        together = pa.concat_tables([by_cell[cell] for cell in cells])
        good, repeated = choose_rows(together.filter(pc.is_null(together["reason"])), task.on_duplicate)
        ahead = [path for cell in cells for output in (follows or {}).get(cell, ()) for path in output.parts]
        files = [*task.files_of(bucket), *(TableFile(path, 0, None, {}) for path in ahead)]
        order = SourceOrder(task.on_duplicate, task.present)
        known = find_known(task.table, files, good, task.removed, order, task.cells)
        for cell in cells:
            mine = good.filter(pc.equal(good["cell"], cell))
            others = repeated.filter(pc.equal(repeated["cell"], cell))
            found.append(CellRows(cell, bucket, by_cell[cell], mine, others, known.of(cell, mine["doc_id"])))
    return sorted(found, key=lambda each: each.cell)


def followed_outputs(
    task: WaveTask, cells: Collection[int], earlier: Mapping[int, Mapping[int, CellResult]]
) -> dict[int, tuple[CellOutput, ...]]:
    """Return the outputs of cells in the waves that the snapshot of a wave does not have, by cell."""
    waves = [wave for wave in sorted(earlier) if task.done <= wave < task.wave]
    return {cell: tuple(earlier[wave][cell].output(wave) for wave in waves) for cell in cells}


def reusable_results(
    task: WaveTask,
    cells: Collection[int],
    earlier: Mapping[int, Mapping[int, CellResult]],
    read: ReadMarkers = read_markers,
) -> dict[int, CellResult]:
    """Return the results of the cells that an earlier attempt has finished and that can still be committed."""
    finished = finished_cells(task.table, task.quarantine, task.plan, task.wave, read)
    found = {cell: finished[cell] for cell in cells if cell in finished}
    outputs = [output for result in found.values() for output in result.follows]
    committed = _Committed(task, {output.wave for output in outputs if output.quarantine})

    def stands(cell: int, output: CellOutput) -> bool:
        if output.wave < task.done:
            return committed.has(cell, output)
        result = earlier.get(output.wave, {}).get(cell)
        return result is not None and result.output(output.wave) == output

    # A cell that deletes rows of a part which was compacted in the meantime is encoded again.
    return {
        cell: result
        for cell, result in found.items()
        if committed.has_bases(result.bucket, result.deletions)
        and all(stands(cell, output) for output in result.follows)
    }


class _Committed:
    """Parts of the snapshot of a wave, and committed parts of the quarantine."""

    def __init__(self, task: WaveTask, waves: Collection[int]) -> None:
        self._task = task
        self._parts: dict[int, dict[str, str | None]] = {}  # bucket -> path -> unique id of its deletion vector
        quarantine = open_table(task.quarantine) if waves else None
        self._bad = frozenset(quarantine_rows.committed_files(quarantine, task.plan, waves) if quarantine else ())

    def has_bases(self, bucket: int, deletions: Collection[Deletion]) -> bool:
        parts = self._parts_of(bucket) if deletions else {}
        return all(each.path in parts and parts[each.path] == each.before for each in deletions)

    def has(self, cell: int, output: CellOutput) -> bool:
        bad = output.quarantine is None or output.quarantine in self._bad
        return bad and self._parts_of(cell % self._task.properties.buckets).keys() >= {*output.parts}

    def _parts_of(self, bucket: int) -> dict[str, str | None]:
        if bucket not in self._parts:
            files = self._task.files_of(bucket)
            self._parts[bucket] = {file.path: file.deleted.unique_id if file.deleted else None for file in files}
        return self._parts[bucket]
