"""A cell is encoded only if every row and every row count of its read tasks arrived."""

import pyarrow as pa
import pytest

from lsr_prod.corpus.source_rows import row_schema
from lsr_prod.encoding.cells.lookup import check_row_counts, with_row_counts
from lsr_prod.errors import IncompleteWaveError

SCHEMA = row_schema(())


def read(*cells: int) -> pa.Table:
    """Return a row of each of these cells."""
    return pa.Table.from_pylist([{"cell": cell, "doc_id": str(at)} for at, cell in enumerate(cells)], schema=SCHEMA)


def arrived(cell: int, *tasks: list[pa.Table]) -> pa.Table:
    """Return what arrives at a cell from read tasks."""
    tables = [table for task in tasks for table in with_row_counts(task, (0, 1), SCHEMA)]
    rows = pa.concat_tables(tables).to_pylist()
    return pa.Table.from_pylist([row for row in rows if row["cell"] == cell], schema=SCHEMA)


def test_rows_of_all_tasks_are_returned_without_the_counts():
    rows = check_row_counts(arrived(0, [read(0, 1, 0)], [read(1), read(0)], []), 3, "cell 0")
    assert rows["doc_id"].to_pylist() == ["0", "2", "0"]
    assert rows["reason"].null_count == 3


@pytest.mark.parametrize("lost", [0, -1])
def test_lost_doubled_or_missing_rows_and_counts_are_refused(lost: int):
    whole = arrived(0, [read(0, 0)])
    for wrong in (
        whole.filter([at != lost % 3 for at in range(3)]),
        pa.concat_tables([whole, whole.slice(lost % 3, 1)]),
        SCHEMA.empty_table(),
    ):
        with pytest.raises(IncompleteWaveError, match=r"cell 0: \d of \d rows and \d of 1 row counts arrived"):
            check_row_counts(wrong, 1, "cell 0")


def test_count_of_an_empty_task_may_not_be_missing():
    with pytest.raises(IncompleteWaveError, match="2 of 2 rows and 1 of 2 row counts"):
        check_row_counts(arrived(0, [read(0, 0)]), 2, "cell 0")


def test_row_of_a_cell_that_is_not_encoded_is_a_mistake():
    with pytest.raises(AssertionError, match="a row of a cell that is not encoded"):
        arrived(0, [read(0, 2)])
