"""The quarantine of committed waves is compacted; its rows stay the same, also with concurrent commits."""

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lsr_prod.encoding.commit.committer import Committer
from lsr_prod.encoding.commit.fence import take_epoch
from lsr_prod.encoding.plans.successors import save_plan
from lsr_prod.encoding.tables import Part
from lsr_prod.encoding.tables.quarantine_rows import create_quarantine, quarantine_parts, quarantined_rows
from lsr_prod.encoding.tables.sparse_table import create_sparse_table
from lsr_prod.operations.maintenance.compact import Merge, merge_parts
from lsr_prod.operations.maintenance.job import compact_quarantine
from lsr_prod.operations.maintenance.vacuum import vacuum
from lsr_prod.storage import Store
from tests.encoding.made_tables import PROPERTIES, as_wave, bad_rows, make_cell, newest
from tests.encoding.plans.test_increment import MEGABYTE, first_plan
from tests.operations.maintenance.test_vacuum import DAY, age

_TARGET = 1_000_000

# Compacts a quarantine and kills its own process before the nth part or commit is written.
_KILLED = """
import os, signal, sys
from deltalake import DeltaTable
from lsr_prod.operations.maintenance.job import compact_quarantine
from lsr_prod.storage import Store
left = int(sys.argv[3])
def counted(write):
    def write_or_die(*args, **kwargs):
        global left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        return write(*args, **kwargs)
    return write_or_die
Store.put_new = counted(Store.put_new)
DeltaTable.create_write_transaction = counted(DeltaTable.create_write_transaction)
compact_quarantine(Store(sys.argv[2]), Store(sys.argv[1]), 1_000_000)
"""
PLAN = first_plan("abc", size=MEGABYTE)


def commit(tables: tuple[Store, Store], *waves: int) -> None:
    """Commit waves of three cells, with 1, 2 and 3 bad rows."""
    table, quarantine = tables
    committer = Committer(take_epoch(table, PLAN.digest, ()), table, quarantine)
    for wave in waves:
        cells = [
            make_cell(table, quarantine, wave, f"{wave}{cell}"[cell:], "xyz"[: cell + 1], cell=cell, plan=PLAN.digest)
            for cell in range(3)
        ]
        assert committer.commit(as_wave(wave, *cells))


@pytest.fixture
def tables(tmp_path: Path) -> tuple[Store, Store]:
    table, quarantine = Store(str(tmp_path / "table")), Store(str(tmp_path / "quarantine"))
    save_plan(PLAN, table)
    create_sparse_table(table, PROPERTIES, PLAN.digest)
    create_quarantine(quarantine)
    return table, quarantine


def rows(quarantine: Store) -> list[tuple]:
    """Return wave, position and detail of every row."""
    return sorted(
        (part.wave, row["position"], row["detail"])
        for part in quarantine_parts(quarantine)
        for row in quarantined_rows(quarantine, part)
    )


def test_small_parts_of_a_wave_become_one_with_the_same_rows(tables: tuple[Store, Store]):
    table, quarantine = tables
    commit(tables, 0, 1, 2)
    before = rows(quarantine)
    planned = compact_quarantine(quarantine, table, _TARGET, dry_run=True)
    done = compact_quarantine(quarantine, table, _TARGET)
    assert (planned.parts_before, planned.parts_after, planned.parts_merged) == (9, 3, 9)
    assert (done.parts_before, done.parts_after, done.parts_merged, done.commits) == (9, 3, 9, 1)
    assert rows(quarantine) == before
    assert bad_rows(quarantine, PLAN.digest) == 18
    for file in newest(quarantine).files():
        positions = pq.ParquetFile(Path(quarantine.uri) / file.path).read()["position"].to_pylist()
        assert positions == sorted(positions)
    assert compact_quarantine(quarantine, table, _TARGET).commits == 0


def test_unfinished_plan_is_left_alone(tables: tuple[Store, Store]):
    table, quarantine = tables
    commit(tables, 0, 1)
    assert compact_quarantine(quarantine, table, _TARGET).parts_merged == 0
    commit(tables, 2)
    assert compact_quarantine(quarantine, table, _TARGET).parts_merged == 9


def test_wave_that_the_sparse_table_lacks_is_left_alone(tables: tuple[Store, Store]):
    table, quarantine = tables
    commit(tables, 0, 1, 2)
    other = Committer(take_epoch(table, "other", ()), table, quarantine)
    bad = [make_cell(table, quarantine, 0, "", "xy"[:n], cell=n, plan="other").quarantine for n in (1, 2)]
    other._commit_quarantine(0, [part for part in bad if part])
    assert compact_quarantine(quarantine, table, _TARGET).parts_merged == 9
    assert compact_quarantine(quarantine, table, _TARGET).parts_merged == 0


def test_concurrent_commit_comes_first_and_the_compaction_follows(tables: tuple[Store, Store]):
    table, quarantine = tables
    commit(tables, 0, 1, 2)
    before = rows(quarantine)

    def commit_then_merge(store: Store, merges: Sequence[Merge]) -> Iterator[tuple[Merge, Part]]:
        made = [(merge, merge_parts(store, merge)) for merge in merges]
        part = make_cell(table, store, 7, "", "w", plan="later").quarantine
        assert part is not None
        newest(store).commit([(part, {"plan": "later", "wave": "7"})], [], app="later", version=0, epoch=1)
        yield from made

    done = compact_quarantine(quarantine, table, _TARGET, run=commit_then_merge)
    assert (done.parts_merged, done.merges_skipped, done.parts_after) == (9, 0, 4)
    assert rows(quarantine) == sorted([*before, (7, 0, "w")])


def test_part_with_nullable_columns_of_another_program_is_merged(tables: tuple[Store, Store]):
    table, quarantine = tables
    commit(tables, 0, 1, 2)
    before = len(rows(quarantine))
    old = newest(quarantine).files()[0]
    path = Path(quarantine.uri) / old.path
    found = pq.ParquetFile(path).read()
    pq.write_table(found.cast(pa.schema([field.with_nullable(True) for field in found.schema])), path)
    assert compact_quarantine(quarantine, table, _TARGET).parts_merged == 9
    assert len(rows(quarantine)) == before


@pytest.mark.long
def test_killed_compaction_changes_no_row_and_is_repeated(tables: tuple[Store, Store]):
    table, quarantine = tables
    commit(tables, 0, 1, 2)
    before = rows(quarantine)
    for nth in (2, 4):  # a merged part, the commit
        command = [sys.executable, "-c", _KILLED, table.uri, quarantine.uri, str(nth)]
        assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
        assert len(newest(quarantine).files()) == 9
        assert rows(quarantine) == before
    assert compact_quarantine(quarantine, table, _TARGET).parts_after == 3
    assert rows(quarantine) == before
    age(Path(quarantine.uri))
    assert vacuum(quarantine, DAY).counts() == {"parts": 9}
    assert rows(quarantine) == before
