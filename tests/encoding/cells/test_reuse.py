"""Finished cells of an earlier attempt are used only while everything that they follow is as it was."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from lsr_prod.encoding.cells.cell import prepare_cell, write_cell
from lsr_prod.encoding.cells.lookup import WaveTask, followed_outputs, look_up_cells, reusable_results
from lsr_prod.encoding.commit.committer import Committer
from lsr_prod.encoding.commit.fence import take_epoch
from lsr_prod.encoding.commit.markers import mark_finished
from lsr_prod.encoding.results import CellOutput, CellResult, WaveResult
from lsr_prod.encoding.tables import write_part
from lsr_prod.encoding.tables.sparse_table import committed_files
from tests.encoding.cells.test_cell import encode, encode_only, rows, task
from tests.encoding.made_tables import newest


def finish(wave: WaveTask, table: pa.Table, follows: Sequence[CellOutput] = ()) -> CellResult:
    """Encode a cell and write its marker."""
    (found,) = look_up_cells(wave, table, {0: follows})
    cell = prepare_cell(wave, found)
    result = write_cell(wave, cell, *encode(cell.texts()), follows)
    return mark_finished(wave.table, wave.quarantine, wave.plan, wave.wave, result)


def commit(wave: WaveTask, result: CellResult) -> WaveTask:
    """Commit a wave; return the next one."""
    Committer(take_epoch(wave.table, wave.plan, []), wave.table, wave.quarantine).commit(
        WaveResult(wave.wave, (result,))
    )
    number = wave.wave + 1
    return replace(wave, wave=number, done=number, committed=committed_files(newest(wave.table)))


def reused(wave: WaveTask, earlier: dict[int, dict[int, CellResult]] | None = None) -> list[int]:
    return [*reusable_results(wave, [0, 1], earlier or {})]


def test_finished_cell_is_used_again(tmp_path: Path):
    wave = task(tmp_path)
    assert reused(wave) == []
    result = finish(wave, rows(("a", "one", 1), bad=1))
    assert reusable_results(wave, [0, 1], {}) == {0: replace(result, reused=True)}
    assert reusable_results(wave, [1], {}) == {}


def test_cell_that_deletes_rows_is_used_only_with_the_parts_that_it_has_seen(tmp_path: Path):
    first = task(tmp_path)
    before = finish(first, rows(("a", "one", 1), ("b", "two", 1)))
    wave = replace(commit(first, before), removed=frozenset({1}))
    result = finish(wave, rows(("a", "other", 2)))
    assert result.deletions
    assert reused(wave) == [0]

    changed = replace(result, deletions=(replace(result.deletions[0], before="another"),))
    mark_finished(wave.table, wave.quarantine, wave.plan, wave.wave, changed)
    assert reused(wave) == []

    mark_finished(wave.table, wave.quarantine, wave.plan, wave.wave, result)
    (part,) = before.parts
    data = pa.parquet.read_table(f"{wave.table.uri}/{part.path}", partitioning=None)
    compacted = write_part(wave.table, "bucket=0", data, "compaction")
    newest(wave.table).commit([(compacted, {"bucket": "0"})], [part.path], app="compact", version=0, epoch=1)
    assert reused(replace(wave, committed=committed_files(newest(wave.table)))) == []


def test_cell_that_follows_a_result_of_this_attempt_needs_the_same_result(tmp_path: Path):
    first = task(tmp_path)
    before = finish(first, rows(("a", "one", 1)))
    wave = replace(first, wave=1)
    follows = followed_outputs(wave, [0], {0: {0: before}})[0]
    assert follows == (before.output(0),)
    finish(wave, rows(("a", "other", 2), ("b", "two", 2)), follows)
    assert reused(wave, {0: {0: before}}) == [0]
    assert reused(wave, {0: {0: encode_only(first, rows(("c", "three", 1)))}}) == []
    assert reused(wave, {0: {}}) == []
    assert reused(wave) == []


@pytest.mark.parametrize("bad", [0, 1])
def test_cell_that_follows_a_committed_result_needs_its_parts(tmp_path: Path, bad: int):
    first = task(tmp_path)
    before = finish(first, rows(("a", "one", 1), bad=bad))
    ahead = replace(first, wave=1)
    follows = (before.output(0),)
    assert (follows[0].quarantine is None) == (bad == 0)
    finish(ahead, rows(("a", "other", 2), ("b", "two", 2)), follows)
    wave = commit(first, before)
    assert reused(wave) == [0]
    assert reused(replace(wave, committed=ahead.committed)) == []  # the snapshot lacks the part
    assert followed_outputs(wave, [0], {0: {0: before}}) == {0: ()}


def test_cell_that_follows_bad_rows_which_another_attempt_replaced_is_encoded_again(tmp_path: Path):
    first = task(tmp_path)
    before = finish(first, rows(("a", "one", 1), bad=1))
    ahead = replace(first, wave=1)
    finish(ahead, rows(("b", "two", 2)), (before.output(0),))
    other = encode_only(first, rows(("a", "one", 1), bad=2))
    assert before.parts == other.parts
    assert before.quarantine != other.quarantine
    assert reused(commit(first, other)) == []
