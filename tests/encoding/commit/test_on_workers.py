"""The driver makes no request per part or marker when there are many."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import ray

from lsr_prod.encoding.commit.committer import Committer, check_on_workers
from lsr_prod.encoding.commit.fence import take_epoch
from lsr_prod.encoding.commit.markers import finished_cells, mark_finished, read_markers_on_workers
from lsr_prod.encoding.node_tasks import NodeTasks
from lsr_prod.encoding.results import CellResult, WaveResult
from lsr_prod.errors import CommitError
from lsr_prod.storage.remote import store_counts
from tests.encoding.made_tables import ids_of, make_cell, make_tables

pytestmark = pytest.mark.usefixtures("ray_local")

TASKS = NodeTasks(lambda: (ray.get_runtime_context().get_node_id(),), threads=2)
IDS = [chr(ord("A") + number) for number in range(40)]


def cells_of(folder: Path) -> tuple[Committer, list[CellResult]]:
    table, quarantine = make_tables(folder)
    committer = Committer(take_epoch(table, "p", []), table, quarantine, partial(check_on_workers, TASKS))
    return committer, [make_cell(table, quarantine, 0, name, cell=cell) for cell, name in enumerate(IDS)]


def test_commit_of_many_parts_costs_the_driver_as_many_requests_as_one_of_few(tmp_path: Path):
    counts = []
    for name, number in (("few", 2), ("many", 40)):
        committer, cells = cells_of(tmp_path / name)
        before = store_counts()
        committer = replace(committer, check=(lambda *_: None) if number == 2 else committer.check)
        assert committer.commit(WaveResult(0, tuple(cells[:number])))
        counts.append((store_counts() - before).requests)
        assert ids_of(committer.table) == IDS[:number]
    assert counts[0] == counts[1]


def test_damaged_part_is_found_by_the_workers(tmp_path: Path):
    committer, cells = cells_of(tmp_path)
    (Path(committer.table.uri) / cells[35].parts[0].path).write_bytes(b"short")
    with pytest.raises(CommitError, match=r"has 5 bytes instead of"):
        committer.commit(WaveResult(0, tuple(cells)))
    assert ids_of(committer.table) == []


def test_many_markers_are_read_by_workers(tmp_path: Path):
    committer, cells = cells_of(tmp_path)
    table, quarantine = committer.table, committer.quarantine
    for cell in cells:
        mark_finished(table, quarantine, "p", 0, cell)
    (Path(table.uri) / cells[3].parts[0].path).write_bytes(b"short")
    before = store_counts()
    found = finished_cells(table, quarantine, "p", 0, partial(read_markers_on_workers, TASKS))
    assert (store_counts() - before).requests == {"list": 1}
    assert found == {cell.cell: replace(cell, reused=True) for cell in cells if cell.cell != 3}
