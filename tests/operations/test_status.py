"""Status of tables: while a job runs in another process, after its end, for given-up plans, and of other releases."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from lsr_prod.encoding.commit.committer import Committer
from lsr_prod.encoding.commit.fence import take_epoch
from lsr_prod.encoding.commit.markers import mark_finished
from lsr_prod.encoding.plans.plan_header import ListDigest, PlanHeader
from lsr_prod.encoding.results import WaveResult
from lsr_prod.encoding.tables.deletions import write_deletions
from lsr_prod.encoding.tables.quarantine_rows import create_quarantine
from lsr_prod.encoding.tables.sparse_table import PROTOCOL_FOLDER, create_sparse_table
from lsr_prod.jobs.command import main
from lsr_prod.operations.status import PlanStatus, table_status
from lsr_prod.storage import Store
from lsr_prod.storage.formats.digests import digest_json, record_bytes
from tests.encoding.made_tables import PROPERTIES, make_cell, newest, recount

# Takes the epoch of a plan, says so, and lives until its input ends.
_HOLDER = """
import sys
from lsr_prod.encoding.commit.fence import take_epoch
from lsr_prod.storage import Store
take_epoch(Store(sys.argv[1], dict(one.split("=", 1) for one in sys.argv[3:])), sys.argv[2], ())
print("taken", flush=True)
sys.stdin.read()
"""


def header(base: str | None = None, waves: int = 2, base_waves: int | None = None) -> PlanHeader:
    lists = ListDigest(1, "f" * 64)
    return PlanHeader(base, "b" * 64, lists, lists, waves, 4, {}, {"buckets": 2}, base_waves)


def save(store: Store, plan: PlanHeader) -> str:
    digest = digest_json(plan.to_json())
    store.put_new(f"{PROTOCOL_FOLDER}/plans/{digest}.json", record_bytes(plan.to_json()))
    return digest


def tables(root: str, options: dict[str, str] | None = None) -> tuple[Store, Store, str]:
    table, quarantine = Store(f"{root}/table", options or {}), Store(f"{root}/quarantine", options or {})
    digest = save(table, header())
    create_sparse_table(table, PROPERTIES, digest)
    create_quarantine(quarantine)
    return table, quarantine, digest


def link(store: Store, base: str, record: dict) -> None:
    store.put_new(f"{PROTOCOL_FOLDER}/successors/{base}/000001.json", record_bytes(record))


def hold(table: Store, plan: str) -> subprocess.Popen[str]:
    options = [f"{name}={value}" for name, value in table.options.items()]
    command = [sys.executable, "-c", _HOLDER, table.uri, plan, *options]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "taken\n"
    return holder


def shown(capsys: pytest.CaptureFixture[str], *argv: str) -> dict:
    assert main(["table", "status", *argv, "--json"]) == 0
    found: dict = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize("remote", [False, True], ids=["local", "s3"])
def test_status_names_running_process_then_its_end(
    remote: bool, tmp_path: Path, s3_options: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    root, options = ("s3://lsr/status", s3_options) if remote else (str(tmp_path), {})
    table, quarantine, digest = tables(root, options)
    cells = [make_cell(table, quarantine, 0, ids, cell=cell, plan=digest) for cell, ids in enumerate("abcd")]
    Committer(take_epoch(table, digest, ()), table, quarantine).commit(WaveResult(0, tuple(cells)))
    argv = [table.uri, *(text for name, value in options.items() for text in ("--store-option", f"{name}={value}"))]
    with hold(table, digest) as holder:
        mark_finished(table, quarantine, digest, 1, make_cell(table, quarantine, 1, "e", cell=0, plan=digest))
        (plan,) = shown(capsys, *argv)["plans"]
        assert (plan["state"], plan["pid"], plan["attempt"]) == ("running", holder.pid, 2)
        assert (plan["waves_done"], plan["waves"], plan["cells_done"], plan["cells"]) == (1, 2, 1, 4)
        assert main(["table", "status", *argv]) == 0
        sentence = capsys.readouterr().out.splitlines()[-1]
        assert f"process {holder.pid} on " in sentence
        assert "1 of 2 waves are committed, 1 of 4 cells of the next wave are finished" in sentence
        holder.kill()
    (plan,) = shown(capsys, *argv)["plans"]
    assert plan["state"] == "ended"
    assert main(["table", "status", *argv]) == 0
    assert "does not exist any more. The same lsr-prod encode command resumes it." in capsys.readouterr().out


def test_status_of_given_up_and_finished_plans(tmp_path: Path) -> None:
    table, quarantine, first = tables(str(tmp_path))
    second = save(table, header(base=first, waves=1, base_waves=0))
    link(table, first, {"plan": second, "waves": 0})
    cells = tuple(make_cell(table, quarantine, 0, ids, cell=cell, plan=second) for cell, ids in enumerate("ab"))
    Committer(take_epoch(table, second, ()), table, quarantine).commit(WaveResult(0, cells))
    status = table_status(table)
    assert [(plan.plan, plan.kind, plan.state) for plan in status.plans] == [
        (first, "full", "given up"),
        (second, "increment", "finished"),
    ]
    assert (status.documents, status.version) == (2, 1)


def test_digest_of_a_table_with_deleted_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, quarantine, digest = tables(str(tmp_path))
    old = make_cell(table, quarantine, 0, "abc", plan=digest)
    Committer(take_epoch(table, digest, ()), table, quarantine).commit(WaveResult(0, (old,)))
    files = newest(table).files()
    going = pa.table({"path": [files[0].path], "row": pa.array([1], pa.int64())})
    new = replace(make_cell(table, quarantine, 1, "d", plan=digest), deletions=write_deletions(table, files, going))
    new = recount(new, deleted=1)
    Committer(take_epoch(table, digest, ()), table, quarantine).commit(WaveResult(1, (new,)))
    other, other_quarantine, plan = tables(str(tmp_path / "whole"))
    same = make_cell(other, other_quarantine, 0, "acd", plan=plan)
    Committer(take_epoch(other, plan, ()), other, other_quarantine).commit(WaveResult(0, (same,)))
    assert shown(capsys, table.uri, "--digest")["digest"] == shown(capsys, other.uri, "--digest")["digest"]
    assert "digest" not in shown(capsys, table.uri)


def test_status_before_the_table_is_created(tmp_path: Path) -> None:
    table = Store(str(tmp_path / "table"))
    digest = save(table, header())
    assert table_status(table).plans == (PlanStatus(digest, "full", "not started", 2, 0, 4),)


@pytest.mark.parametrize("number", [2, 99])
def test_plan_of_another_release_is_unreadable(number: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, quarantine = Store(str(tmp_path / "table")), Store(str(tmp_path / "quarantine"))
    record = {**header().to_json(), "format": number}
    digest = digest_json(record)
    table.put_new(f"{PROTOCOL_FOLDER}/plans/{digest}.json", record_bytes(record))
    create_sparse_table(table, PROPERTIES, digest)
    create_quarantine(quarantine)
    assert [plan.state for plan in table_status(table).plans] == ["unreadable"]
    assert main(["table", "status", table.uri]) == 0
    assert "unreadable" in capsys.readouterr().out


@pytest.mark.parametrize("record", [b"{", b"{}", b'{"host": "h", "pid": -1, "started_at": "t"}', b"[]"])
def test_damaged_epoch_is_one_line_and_exit_code_1(
    record: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, _, digest = tables(str(tmp_path))
    table.put_new(f"{PROTOCOL_FOLDER}/epochs/{digest}/000001.json", record)
    assert main(["table", "status", table.uri]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize(
    ("argv", "code", "text"),
    [
        (["nowhere"], 1, "is not a table; give the folder or URI of encode.table"),
        ([], 2, "give either TABLE or --config"),
        (["x", "--config", "y"], 2, "give either TABLE or --config"),
    ],
)
def test_wrong_place_is_one_line(
    argv: list[str], code: int, text: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["table", "status", *argv]) == code
    captured = capsys.readouterr()
    assert text in captured.err
    assert (len(captured.err.splitlines()), captured.out) == (1, "")
