from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lsr_prod.encoding.commit.markers import (
    MARKERS_FOLDER,
    delete_markers,
    finished_cells,
    mark_finished,
    marked_files,
    read_markers,
)
from lsr_prod.encoding.results import CellOutput
from lsr_prod.encoding.tables.deletions import Deletion
from lsr_prod.errors import IncompleteWaveError
from lsr_prod.storage import Store
from lsr_prod.storage.deletion_vector import save_vectors
from tests.encoding.made_tables import make_cell, make_tables, make_wave


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


def test_marker_with_a_damaged_deletion_vector_is_ignored(tmp_path: Path):
    table, quarantine = make_tables(tmp_path)
    vector = save_vectors(table, {"old": np.arange(0, 9000, 7, dtype=np.uint32)})["old"]
    cell = replace(make_cell(table, quarantine, 0, "a"), deletions=(Deletion("old", None, vector, 1286),))
    mark_finished(table, quarantine, "p", 0, cell)
    assert finished_cells(table, quarantine, "p", 0).keys() == {0}
    (file,) = tmp_path.rglob("deletion_vector_*.bin")
    file.write_bytes(file.read_bytes()[:-5])
    assert finished_cells(table, quarantine, "p", 0) == {}


def test_marker_that_follows_another_result_is_replaced(tmp_path: Path):
    table, quarantine = make_tables(tmp_path)
    (cell,) = make_wave(table, quarantine, 1, "ab").cells
    before, after = (replace(cell, follows=(CellOutput(0, (path,), None),)) for path in ("first", "again"))
    mark_finished(table, quarantine, "p", 1, before)
    assert mark_finished(table, quarantine, "p", 1, before) == replace(before, reused=True)
    assert mark_finished(table, quarantine, "p", 1, after) == after
    assert finished_cells(table, quarantine, "p", 1) == {0: replace(after, reused=True)}


def test_marker_with_another_number_of_rows_is_refused(tmp_path: Path):
    table, quarantine = make_tables(tmp_path)
    (first,) = make_wave(table, quarantine, 0, "ab").cells
    (second,) = make_wave(table, quarantine, 0, "abc").cells
    mark_finished(table, quarantine, "p", 0, first)
    with pytest.raises(IncompleteWaveError, match="wave 0, cell 0: 3 rows in this attempt, 2 in another"):
        mark_finished(table, quarantine, "p", 0, second)


def test_draft_is_not_a_marker_to_delete(tmp_path: Path):
    table, quarantine = make_tables(tmp_path)
    mark_finished(table, quarantine, "p", 0, make_cell(table, quarantine, 0, "a"))
    draft = tmp_path / "table" / MARKERS_FOLDER / "p" / "0" / ".0.json.0f3a.tmp"
    draft.touch()
    delete_markers(table, "p", 0, {0})
    assert draft.exists()
    assert finished_cells(table, quarantine, "p", 0) == {}


def test_markers_name_the_files_of_their_cells_and_deleted_ones_are_skipped(tmp_path: Path):
    table, quarantine = make_tables(tmp_path)
    large = save_vectors(table, {"old": np.arange(0, 9000, 7, dtype=np.uint32)})["old"]
    small = save_vectors(table, {"old": np.array([3], np.uint32)})["old"]
    cells = [make_cell(table, quarantine, 0, "a", "x", cell=0), make_cell(table, quarantine, 0, "b", cell=1)]
    cells[0] = replace(cells[0], deletions=(Deletion("old", None, large, 1286), Deletion("other", None, small, 1)))
    for cell in cells:
        mark_finished(table, quarantine, "p", 0, cell)
    names = sorted(table.names(MARKERS_FOLDER))
    bad = cells[0].quarantine
    assert bad
    (vector,) = tmp_path.rglob("deletion_vector_*.bin")
    expected = [cells[0].parts[0].path, bad.path, vector.name, cells[1].parts[0].path]
    assert [path.rpartition("/")[2] for path in marked_files(table, [*names, "deleted.json"])] == [
        path.rpartition("/")[2] for path in expected
    ]
    assert [result.cell for result in read_markers(table, quarantine, [*names, "deleted.json"])] == [0, 1]


def test_marker_of_a_rival_that_appears_while_another_is_written_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    table, quarantine = make_tables(tmp_path)
    (first,) = make_wave(table, quarantine, 0, "ab", "x").cells
    (second,) = make_wave(table, quarantine, 0, "a", "xb").cells
    get, rival = Store.get, []

    def late(store: Store, name: str) -> bytes | None:
        data = get(store, name)
        monkeypatch.setattr(Store, "get", get)
        rival.append(mark_finished(table, quarantine, "p", 0, second))
        return data

    monkeypatch.setattr(Store, "get", late)
    results = [mark_finished(table, quarantine, "p", 0, first), *rival]
    results.append(mark_finished(table, quarantine, "p", 0, second))
    assert len({result.parts for result in results}) == 1
