"""Row counts: every read task reports its number of rows for every cell, and a cell is encoded only if all arrived.

The counts travel as rows of the cell. So a lost block, a cell cut in two or a lost output of a task between reading and
encoding is detected before anything is written.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from lsr_prod.errors import IncompleteWaveError

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
