"""Cells written in a thread, one after the other."""

from pathlib import Path

import pytest

from lsr_prod.encoding.cells.cell import CellWriter, PreparedCell, prepare_cell
from lsr_prod.encoding.cells.lookup import WaveTask, look_up_cells
from lsr_prod.encoding.commit.markers import finished_cells
from lsr_prod.errors import StorageError
from tests.encoding.cells.test_cell import encode, rows, task


def refuse(*_: object) -> None:
    raise StorageError("no room")


def prepared(wave: WaveTask, cell: int) -> PreparedCell:
    (found,) = look_up_cells(wave, rows((f"d{cell}", "one", 1), cell=cell))
    return prepare_cell(wave, found)


def test_results_and_markers_of_all_cells_are_there_after_the_block(tmp_path: Path):
    wave = task(tmp_path)
    with CellWriter(wave, {}) as writer:
        for cell in range(2):
            ready = prepared(wave, cell)
            writer.write(ready, *encode(ready.texts()))
    assert [(result.cell, result.encoded) for result in writer.results] == [(0, 1), (1, 1)]
    assert sorted(finished_cells(wave.table, wave.quarantine, "p", 0)) == [0, 1]


def test_error_of_the_last_cell_is_raised_and_the_thread_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    wave = task(tmp_path)
    ready = prepared(wave, 0)
    monkeypatch.setattr("lsr_prod.encoding.cells.cell.write_cell", refuse)
    with pytest.raises(StorageError, match="no room"), CellWriter(wave, {}) as writer:
        writer.write(ready, *encode(ready.texts()))
    assert not any(thread.is_alive() for thread in writer._thread._threads)


def test_error_of_the_last_cell_does_not_replace_the_error_inside_the_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    wave = task(tmp_path)
    ready = prepared(wave, 0)
    monkeypatch.setattr("lsr_prod.encoding.cells.cell.write_cell", refuse)
    vectors = encode(ready.texts())

    def fail() -> None:
        with CellWriter(wave, {}) as writer:
            writer.write(ready, *vectors)
            raise KeyError("first")

    with pytest.raises(KeyError, match="first"):
        fail()
