"""Receipts: every read task says of every cell how many rows it gave it, and a cell is encoded only if all arrived.

They travel as rows of the cell, so that whatever loses a block, cuts a cell in two or drops a task's output between
reading and encoding is seen before anything is written.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from lsr_prod.errors import IncompleteWaveError

__all__ = ["RECEIPT", "check_receipts", "with_receipts"]

RECEIPT = "receipt"
"""What stands in ``reason`` of a row that is a receipt; its ``position`` is a number of rows."""


def with_receipts(tables: Iterable[pa.Table], cells: Iterable[int], schema: pa.Schema) -> Iterator[pa.Table]:
    """The tables of a read task, and behind them a receipt for each of ``cells``.

    Args:
        tables: of ``rows.row_schema``, all rows of these cells.
        cells: the cells that are encoded.
        schema: theirs.
    """
    counts: Counter[int] = Counter()
    for table in tables:
        for group in pc.value_counts(table["cell"]).to_pylist():
            counts[group["values"]] += group["counts"]
        yield table
    receipts = [{"cell": cell, "reason": RECEIPT, "position": counts.pop(cell, 0)} for cell in cells]
    assert not counts, "a row of a cell that nobody waits for"
    yield pa.Table.from_pylist(receipts, schema=schema)


def check_receipts(rows: pa.Table, tasks: int, what: str) -> pa.Table:
    """The rows of a cell without its receipts.

    Args:
        rows: all that arrived for the cell.
        tasks: read tasks, each of which gave a receipt.
        what: the cell, for the error.

    Raises:
        IncompleteWaveError: a receipt or a row is missing, or came twice.
    """
    are_receipts = pc.equal(pc.fill_null(rows["reason"], ""), RECEIPT)
    receipts = rows["position"].filter(are_receipts)
    promised, arrived = pc.sum(receipts).as_py() or 0, rows.num_rows - len(receipts)
    if len(receipts) != tasks or promised != arrived:
        raise IncompleteWaveError(
            f"{what}: {arrived} of {promised} rows and {len(receipts)} of {tasks} receipts arrived; nothing was "
            "committed, run the job again"
        )
    return rows.filter(pc.invert(are_receipts))
