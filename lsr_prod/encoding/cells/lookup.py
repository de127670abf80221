"""Look up the ids of a block of rows in the parts of their buckets: once for all cells of a bucket.

A wave may be encoded before an earlier wave of the same plan is committed. Then the parts of the earlier wave are
looked up too: those of the same cell, which have every row of the earlier wave whose id hashes to it.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lsr_prod.encoding.cells.duplicates import Rule, SourceOrder, choose_rows
from lsr_prod.encoding.cells.known import Known, find_known
from lsr_prod.encoding.cells.row_counts import check_row_counts
from lsr_prod.encoding.results import CellOutput
from lsr_prod.encoding.table import files_of_bucket
from lsr_prod.formats.table import TableProperties
from lsr_prod.storage import Store
from lsr_prod.tables import TableFile


@dataclass(frozen=True, slots=True)
class WaveTask:
    """Description of a wave for the actors.

    Attributes:
        plan: digest of the plan.
        wave: number of the wave.
        cells: number of cells that ids are hashed to.
        table: the sparse table's folder.
        quarantine: the quarantine table's folder.
        properties: of the sparse table.
        committed: parts of the snapshot that the wave is based on (``table.committed_files``).
        removed: keys of the removed source files, whose rows are deleted.
        present: int64, keys of the current source files in their order; only for an increment.
        on_duplicate: which row of an id becomes the document.
        read_tasks: tasks that read the wave; each sends every cell a row count.
        done: waves of the plan that the snapshot has.
    """

    plan: str
    wave: int
    cells: int
    table: Store
    quarantine: Store
    properties: TableProperties
    committed: pa.Table
    removed: frozenset[int] = frozenset()
    present: pa.Array | None = None
    on_duplicate: Rule = "first"
    read_tasks: int = 1
    done: int = 0

    def files_of(self, bucket: int) -> list[TableFile]:
        """Return the committed parts of a bucket."""
        return files_of_bucket(self.committed, bucket)


@dataclass(frozen=True, slots=True)
class CellRows:
    """Rows of a cell, and the committed rows of their ids.

    Attributes:
        cell: number of the cell.
        bucket: its bucket.
        rows: all rows (``rows.row_schema``).
        good: one row of each id, sorted by id.
        repeated: the other rows of these ids.
        known: committed rows of these ids.
    """

    cell: int
    bucket: int
    rows: pa.Table
    good: pa.Table
    repeated: pa.Table
    known: Known


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
