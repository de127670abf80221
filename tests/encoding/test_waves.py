"""Rows of the new files of an increment, read by Ray once for all waves."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import ray
from hypothesis import given
from hypothesis import strategies as st

from lsr_prod.config import EncodeSettings, SourceSettings
from lsr_prod.corpus.listing import resolve_source
from lsr_prod.encoding.cells.lookup import check_row_counts
from lsr_prod.encoding.encoder import EncoderFactory
from lsr_prod.encoding.node_tasks import NodeTasks
from lsr_prod.encoding.plans.encode_plan import PlanInputs, make_plan
from lsr_prod.encoding.plans.increment import plan_increment
from lsr_prod.encoding.prepare import Work
from lsr_prod.encoding.waves import BlockRows, WaveReader, blocks_of_cells
from lsr_prod.storage import Store
from lsr_prod.storage.formats.table_format import cell_of
from tests.encoding.made_tables import PROPERTIES
from tests.encoding.opened_files import opened_files

pytestmark = pytest.mark.usefixtures("ray_local")

DOCUMENTS = 60
TASKS = NodeTasks(lambda: (ray.get_runtime_context().get_node_id(),) * 2, threads=1)


def work_of(folder: Path) -> Work:
    """An increment of three new files with two waves and two cells per bucket."""
    source = SourceSettings(paths=[str(folder)], text_fields=["text"], stored_fields=[])
    encode = EncodeSettings(bundle="b", table="t", buckets=2, wave_megabytes=2, slice_megabytes=1, cell_megabytes=1)
    base = make_plan([], PlanInputs(source, encode, "b", {}))
    for name in range(3):
        lines = [{"_id": f"{i}", "text": "x" * 49_000} for i in range(name, DOCUMENTS, 3)]
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    plan = plan_increment(base, resolve_source(source, {}), PlanInputs(source, encode, "b", {}), done=base.waves)
    table = Store(str(folder / "table"))
    factory = EncoderFactory("none:none", {})
    fields: dict[str, Any] = {"table": table, "quarantine": table, "wanted": PROPERTIES, "found": None}
    return Work(source=source, encode=encode, factory=factory, plan=plan, **fields)


def rows_of(found: BlockRows) -> pa.Table:
    return pa.concat_tables([table for tables in found.tables.values() for table in ray.get(list(tables))])


@given(st.sets(st.integers(0, 60)), st.integers(1, 8), st.integers(1, 40))
def test_blocks_have_every_cell_once_and_whole_buckets_where_they_can(cells: set[int], buckets: int, blocks: int):
    found = blocks_of_cells(sorted(cells), buckets, blocks)
    assert sorted(cell for some in found for cell in some) == sorted(cells)
    assert all(found)
    assert len(found) <= blocks
    of_bucket = {cell % buckets for cell in cells}
    if len(of_bucket) >= blocks:
        for bucket in of_bucket:
            assert sum(any(cell % buckets == bucket for cell in some) for some in found) == 1


@pytest.mark.long
def test_new_files_are_opened_once_for_all_waves_and_again_after_a_loss(tmp_path: Path):
    work = work_of(tmp_path)
    plan, new_rows = work.plan, WaveReader(work, TASKS)
    assert (plan.waves, plan.cells) == (2, 4)
    with opened_files(tmp_path) as opened:
        found = []
        for wave in range(plan.waves):
            for todo in (plan.cells_of(wave), plan.cells_of(wave)[1:]):
                read = new_rows.read(wave, {0: todo[:1], 3: todo[1:]} if len(todo) > 1 else {0: todo})
                assert read.tasks == 3
                rows = rows_of(read)
                assert set(rows["cell"].to_pylist()) == set(todo)
                for cell in todo:
                    mine = check_row_counts(rows.filter(pc.equal(rows["cell"], cell)), read.tasks, "cell")
                    assert all(cell_of(doc_id, plan.cells) == cell for doc_id in mine["doc_id"].to_pylist())
                    found += mine["doc_id"].to_pylist() if len(todo) > 1 else []
    assert sorted(found, key=int) == [f"{i}" for i in range(DOCUMENTS)]
    assert set(opened.values()) == {1}
    new_rows.discard()
    with opened_files(tmp_path) as opened:
        assert rows_of(new_rows.read(1, {0: plan.cells_of(1)})).num_rows > 0
    assert set(opened.values()) == {1}


def test_increment_without_new_files_has_row_counts_of_every_cell(tmp_path: Path):
    work = work_of(tmp_path)
    source, encode = work.source, work.encode
    plan = plan_increment(work.plan, [], PlanInputs(source, encode, "b", {}), done=work.plan.waves)
    read = WaveReader(replace(work, plan=plan), TASKS).read(0, {0: plan.cells_of(0)})
    assert (read.tasks, rows_of(read)["cell"].to_pylist()) == (1, list(plan.cells_of(0)))
