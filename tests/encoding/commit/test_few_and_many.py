"""Few parts, vectors and markers are processed by the driver, many by tasks, in groups and with the same result."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lsr_prod.encoding.commit.committer import check_on_workers, merge_on_workers
from lsr_prod.encoding.commit.markers import MARKERS_FOLDER, mark_finished, read_markers_on_workers
from lsr_prod.encoding.node_tasks import NodeTasks
from lsr_prod.encoding.results import CellResult
from lsr_prod.encoding.tables.deletions import Deletion
from lsr_prod.errors import CommitError
from lsr_prod.storage import Store
from lsr_prod.storage.deletion_vector import save_vectors
from tests.encoding.made_tables import make_cell, make_tables


class InProcess(NodeTasks):
    """Tasks that run here, so that the calls can be counted without Ray."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def run(self, function: Callable[..., Any], calls: Sequence[tuple[Any, ...]], *, task: str) -> list[Any]:
        assert task
        self.calls.append(len(calls))
        return [function(*call) for call in calls]


def cells(folder: Path, number: int) -> tuple[Store, Store, list[CellResult]]:
    """Return the tables and many descriptions of one part."""
    table, quarantine = make_tables(folder)
    cell = make_cell(table, quarantine, 0, "a")
    return table, quarantine, [replace(cell, cell=place) for place in range(number)]


@pytest.mark.parametrize(("number", "calls"), [(32, []), (33, [1]), (65, [2])])
def test_parts_are_checked_and_markers_read_by_tasks_if_they_are_many(
    tmp_path: Path, number: int, calls: list[int]
) -> None:
    table, quarantine, many = cells(tmp_path, number)
    tasks = InProcess()
    check_on_workers(tasks, table, quarantine, 0, many)
    assert tasks.calls == calls
    for cell in many:
        mark_finished(table, quarantine, "p", 0, cell)
    names = sorted(table.names(MARKERS_FOLDER))
    tasks = InProcess()
    found = read_markers_on_workers(tasks, table, quarantine, names)
    assert sorted(result.cell for result in found) == list(range(number))
    assert tasks.calls == calls
    missing = replace(many[-1], parts=(replace(many[0].parts[0], path="bucket=0/missing.parquet"),))
    with pytest.raises(CommitError, match=r"missing\.parquet"):
        check_on_workers(InProcess(), table, quarantine, 0, [*many[:-1], missing])


@pytest.mark.parametrize(("number", "calls"), [(32, []), (33, [1]), (65, [2])])
def test_vectors_of_parts_that_several_cells_delete_rows_of_are_merged(
    tmp_path: Path, number: int, calls: list[int]
) -> None:
    table, _ = make_tables(tmp_path)
    groups = []
    for place in range(number):
        vectors = [save_vectors(table, {"part": np.array([row], np.uint32)})["part"] for row in (1, 2)]
        groups.append([Deletion(f"part-{place}", None, vector, 1) for vector in vectors])
    alone = [Deletion("alone", None, groups[0][0].vector, 1)]
    tasks = InProcess()
    merged = merge_on_workers(tasks, table, [alone, *groups])
    assert tasks.calls == calls
    assert merged[0] is alone[0]
    assert [(each.path, each.rows, each.vector.rows) for each in merged[1:]] == [
        (f"part-{place}", 2, 2) for place in range(number)
    ]
