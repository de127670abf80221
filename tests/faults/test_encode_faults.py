"""Killed drivers and concurrent drivers: no document lost or duplicated."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from lsr_prod.encoding.commit.committer import Committer
from lsr_prod.encoding.commit.fence import take_epoch
from lsr_prod.errors import CommitError, FencedError, IncompleteWaveError
from tests.encoding.made_tables import bad_rows, ids_of, make_tables, make_wave, recount

ROOT = Path(__file__).parents[2]


def parts_written(table: Path) -> bool:
    return any(table.glob("bucket=*/part-*.parquet"))


def quarantine_committed(table: Path) -> bool:
    return (Path(f"{table}_quarantine") / "_delta_log" / f"{1:020d}.json").exists()


def first_wave_committed(table: Path) -> bool:
    return (table / "_delta_log" / f"{1:020d}.json").exists()


@pytest.mark.long
@pytest.mark.parametrize(
    "moment",
    [
        quarantine_committed,
        pytest.param(parts_written, marks=pytest.mark.slow),
        pytest.param(first_wave_committed, marks=pytest.mark.slow),
    ],
)
def test_encode_resumes_after_a_killed_driver_without_loss_or_duplicates(
    tmp_path: Path, tiny_bundle: Path, moment: Callable[[Path], bool]
):
    rng = random.Random(moment.__name__)
    corpus = tmp_path / "c.jsonl"
    lines = [json.dumps({"_id": f"d{i}", "text": f"fox {i} " + "filler " * 9000}) for i in range(24)]
    lines[3:3], lines[20:20] = ["no json"], [lines[0]]
    corpus.write_text("\n".join(lines))
    config = tmp_path / "config.yaml"
    table = tmp_path / "table"
    encode = {"bundle": str(tiny_bundle), "table": str(table), "wave_megabytes": 1, "slice_megabytes": 1, "buckets": 2}
    sections = {
        "ray": {"num_cpus": 1},
        "source": {"paths": [str(corpus)], "stored_fields": []},
        "encode": {**encode, "max_bad_fraction": 0.5, "probe_documents": 4},
    }
    config.write_text(json.dumps(sections))
    command = [sys.executable, str(ROOT / "jobs" / "encode.py"), "--config", str(config)]

    driver = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, process_group=0)
    while not moment(table):
        assert driver.poll() is None, "the job ended before the chosen moment"
        time.sleep(0.002)
    time.sleep(rng.random() * 0.05)
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()

    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.rpartition("RESULT ")[2])
    assert (summary["rows_in"], summary["documents"], summary["waves"]) == (26, 24, 2)
    assert summary["quarantined_by_reason"] == {"broken_json": 1, "duplicate_id": 1}
    ids = DeltaTable(table).to_pyarrow_table(columns=["doc_id"])["doc_id"].to_pylist()
    assert sorted(ids) == sorted(f"d{i}" for i in range(24))
    bad = DeltaTable(f"{table}_quarantine").to_pyarrow_table(columns=["reason"])["reason"].to_pylist()
    assert sorted(bad) == ["broken_json", "duplicate_id"]


def test_older_of_two_attempts_is_fenced(tmp_path: Path):
    table, quarantine = make_tables(tmp_path)
    older = Committer(take_epoch(table, "p", []), table, quarantine)
    assert older.commit(make_wave(table, quarantine, 0, "a", "x")) is True
    newer = Committer(take_epoch(table, "p", []), table, quarantine)
    with pytest.raises(FencedError, match="attempt 2 of plan p has taken over from attempt 1"):
        older.commit(make_wave(table, quarantine, 1, "b"))
    assert newer.commit(make_wave(table, quarantine, 0, "a", "x")) is False
    assert newer.commit(make_wave(table, quarantine, 1, "b")) is True
    assert ids_of(table) == ["a", "b"]


@pytest.mark.parametrize("bad", ["", "x"])
def test_quarantine_of_a_partly_committed_wave_is_replaced(tmp_path: Path, bad: str):
    table, quarantine = make_tables(tmp_path)
    first = Committer(take_epoch(table, "p", []), table, quarantine)
    half = make_wave(table, quarantine, 0, "a", "xt")
    first._commit_quarantine(0, [cell.quarantine for cell in half.cells if cell.quarantine])
    assert bad_rows(quarantine) == 2
    second = Committer(take_epoch(table, "p", []), table, quarantine)
    assert second.commit(make_wave(table, quarantine, 0, "a", bad))
    assert bad_rows(quarantine) == len(bad)


def test_wrong_row_counts_and_deleted_parts_are_refused(tmp_path: Path):
    table, quarantine = make_tables(tmp_path)
    committer = Committer(take_epoch(table, "p", []), table, quarantine)
    result = make_wave(table, quarantine, 0, "a")
    with pytest.raises(IncompleteWaveError, match="2 rows in, 0 documents displaced, 1 out and 0 quarantined"):
        committer.commit(replace(result, cells=(recount(result.cells[0], rows_in=2),)))
    with pytest.raises(CommitError, match="wave 1 is next but the table has 0 waves"):
        committer.commit(replace(result, wave=1))
    (tmp_path / "table" / result.cells[0].parts[0].path).unlink()
    with pytest.raises(CommitError, match="has None bytes"):
        committer.commit(result)
