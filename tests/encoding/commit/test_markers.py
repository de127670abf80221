from dataclasses import replace
from pathlib import Path

import numpy as np

from lsr_prod.encoding.commit.markers import delete_markers, finished_cells, mark_finished
from lsr_prod.encoding.results import Deletion
from lsr_prod.tables.deletion_vector import save_vectors
from tests.encoding.tables import make_cell, make_tables, make_wave


def test_marker_contains_the_result_of_the_cell(tmp_path: Path):
    table, quarantine = make_tables(tmp_path)
    (cell,) = make_wave(table, quarantine, 3, "ab", "x").cells
    assert mark_finished(table, quarantine, "p", 3, cell) == cell
    assert finished_cells(table, quarantine, "p", 3) == {cell.cell: replace(cell, reused=True)}
    assert finished_cells(table, quarantine, "p", 2) == {}
    assert finished_cells(table, quarantine, "q", 3) == {}


def test_marker_of_the_first_attempt_is_kept(tmp_path: Path):
    table, quarantine = make_tables(tmp_path)
    (first,) = make_wave(table, quarantine, 0, "ab", "x").cells
    (second,) = make_wave(table, quarantine, 0, "a", "xb").cells
    mark_finished(table, quarantine, "p", 0, first)
    assert mark_finished(table, quarantine, "p", 0, second) == replace(first, reused=True)


def test_marker_with_a_truncated_part_is_ignored(tmp_path: Path):
    table, quarantine = make_tables(tmp_path)
    (first,) = make_wave(table, quarantine, 0, "ab").cells
    mark_finished(table, quarantine, "p", 0, first)
    part = Path(table.uri) / first.parts[0].path
    part.write_bytes(part.read_bytes()[:-9])
    assert finished_cells(table, quarantine, "p", 0) == {}
    (second,) = make_wave(table, quarantine, 0, "a", "b").cells
    assert mark_finished(table, quarantine, "p", 0, second) == second
    assert finished_cells(table, quarantine, "p", 0)[0].parts == second.parts


def test_cells_with_deleted_markers_are_encoded_again(tmp_path: Path):
    table, quarantine = make_tables(tmp_path)
    cells = [make_cell(table, quarantine, 0, name, cell=i) for i, name in enumerate("ab")]
    for cell in cells:
        mark_finished(table, quarantine, "p", 0, cell)
    delete_markers(table, "p", 0, {1})
    assert finished_cells(table, quarantine, "p", 0).keys() == {0}


def test_draft_of_an_interrupted_process_is_not_a_marker(tmp_path: Path):
    table, quarantine = make_tables(tmp_path)
    (cell,) = make_wave(table, quarantine, 0, "ab").cells
    mark_finished(table, quarantine, "p", 0, cell)
    folder = tmp_path / "table" / "_lsr_prod" / "done" / "p" / "0"
    (folder / ".1.json.0f3a.tmp").touch()
    assert finished_cells(table, quarantine, "p", 0) == {0: replace(cell, reused=True)}


def test_marker_that_deletes_rows_of_compacted_parts_is_replaced(tmp_path: Path):
    table, quarantine = make_tables(tmp_path)
    (cell,) = make_wave(table, quarantine, 0, "ab").cells
    vector = save_vectors(table, {"old": np.array([3], np.uint32)})["old"]
    before, after = (replace(cell, deletions=(Deletion(path, None, vector, 1),)) for path in ("old", "compacted"))
    mark_finished(table, quarantine, "p", 0, before)
    assert mark_finished(table, quarantine, "p", 0, after) == after
    assert finished_cells(table, quarantine, "p", 0) == {0: replace(after, reused=True)}
