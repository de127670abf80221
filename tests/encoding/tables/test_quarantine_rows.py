"""Parts of a quarantine by the state of their wave, and their rows."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lsr_prod.encoding.commit.committer import Committer
from lsr_prod.encoding.commit.fence import take_epoch
from lsr_prod.encoding.tables.quarantine_rows import PART_SCHEMA, QuarantinePart, quarantine_parts, quarantined_rows
from lsr_prod.errors import ArtifactError
from lsr_prod.storage import Store
from tests.encoding.made_tables import make_cell, make_tables, make_wave, newest


def test_parts_are_committed_or_not_and_replaced_ones_are_left_out(tmp_path: Path) -> None:
    table, quarantine = make_tables(tmp_path)
    make_wave(table, quarantine, 0, "", "a")  # of an attempt that died: another one commits the wave
    committer = Committer(take_epoch(table, "p", []), table, quarantine)
    assert committer.commit(make_wave(table, quarantine, 0, "x", "bc"))
    assert committer.commit(make_wave(table, quarantine, 1, "y", "e"))
    make_wave(table, quarantine, 2, "", "d")
    make_wave(table, quarantine, 2, "", "d")
    parts = quarantine_parts(quarantine)
    found = [(part.plan, part.wave, part.state) for part in parts]
    assert found == [("p", 0, "committed"), ("p", 1, "committed"), ("p", 2, "not committed")]
    details = [[row["detail"] for row in quarantined_rows(quarantine, part)] for part in parts]
    assert details == [["b", "c"], ["e"], ["d"]]


def test_committed_part_is_listed_once_whatever_the_version_of_its_commit(tmp_path: Path) -> None:
    table, quarantine = make_tables(tmp_path)
    part = make_cell(table, quarantine, 7, "", "a").quarantine
    assert part is not None
    newest(quarantine).commit([(part, {"plan": "p", "wave": "7"})], [], app="p", version=0, epoch=1)
    assert [(one.wave, one.state) for one in quarantine_parts(quarantine)] == [(7, "committed")]


def test_parts_of_a_plan_without_a_commit_are_not_committed(tmp_path: Path) -> None:
    table, quarantine = make_tables(tmp_path)
    make_wave(table, quarantine, 0, "", "a")
    assert [part.state for part in quarantine_parts(quarantine)] == ["not committed"]


def test_folder_with_parts_and_without_a_log_has_no_states(tmp_path: Path) -> None:
    table, quarantine = make_tables(tmp_path)
    make_wave(table, quarantine, 3, "", "a")
    for path in (tmp_path / "quarantine" / "_delta_log").iterdir():
        path.unlink()
    assert [(part.wave, part.state) for part in quarantine_parts(quarantine)] == [(3, "no log")]


def test_folder_that_is_no_quarantine_is_an_error(tmp_path: Path) -> None:
    table, _ = make_tables(tmp_path)
    with pytest.raises(ArtifactError, match="is a table of documents; give the folder of its quarantine"):
        quarantine_parts(table)
    with pytest.raises(ArtifactError, match=r"is no quarantine; give the folder or URI of encode\.quarantine"):
        quarantine_parts(Store(str(tmp_path / "empty")))


def test_deleted_part_has_no_rows_and_a_damaged_one_is_an_error(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    part = QuarantinePart("plan=p/wave=0/part.parquet", "p", 0, "committed")
    assert list(quarantined_rows(store, part)) == []
    path = tmp_path / part.path
    path.parent.mkdir(parents=True)
    schema = pa.schema([field.with_nullable(True) for field in PART_SCHEMA])
    pq.write_table(pa.Table.from_pylist([{"reason": "broken_json"}], schema), path)
    (row,) = quarantined_rows(store, part)
    assert list(row) == PART_SCHEMA.names
    assert (row["reason"], row["doc_id"]) == ("broken_json", None)
    path.write_bytes(b"PAR1 damaged PAR1")
    with pytest.raises(ArtifactError, match=r"part\.parquet is damaged .*; restore or delete it"):
        list(quarantined_rows(store, part))
