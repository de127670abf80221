"""A tenth of ``make faults`` with a fixed seed."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.faults.campaign import plan_worlds
from tests.faults.corpus import make_corpus
from tests.faults.oracle import Findings, inspect
from tests.faults.protocol import Job
from tests.faults.worlds import PHASES

ROOT = Path(__file__).parents[2]


def faults(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.faults", "--seed", "20", *arguments]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    return json.loads(done.stdout.rpartition("RESULT ")[2])


def test_tenth_of_the_faults_loses_duplicates_and_truncates_nothing():
    result = faults("--share", "10", "--parts", "committers", "resume")
    assert result["faults"] >= 26
    assert {result[kind] for kind in ("lost", "doubled", "torn_visible", "wrong")} == {0}
    kinds = {kind.partition(".")[0] for kind in result["landed"]}
    assert kinds == {"kill", "eio", "enospc", "torn", "missing", "landed", "refused", "zombie", "skew"}
    assert result["redone"] <= result["largest_wave"]


@pytest.mark.slow
def test_kills_of_actor_worker_raylet_and_driver_lose_nothing(tiny_bundle: Path):
    result = faults("--parts", "ray", "--ray-kills", "1", "--bundle", str(tiny_bundle))
    assert result["landed"] == {"ray.actor": 1, "ray.driver": 1, "ray.raylet": 1, "ray.worker": 1}
    assert {result[kind] for kind in ("lost", "doubled", "torn_visible", "wrong")} == {0}


@pytest.mark.slow
def test_oracle_detects_losses_and_duplicates_of_the_peer():
    result = faults("--parts", "peer")
    assert result["peer_lost"] > 0
    assert result["peer_doubled"] > 0


def test_campaign_covers_all_faults_and_depends_on_its_seed():
    worlds = plan_worlds(3)
    found = [fault for world in worlds for fault in world.faults]
    assert len(found) >= 260
    for phase in PHASES:
        assert sum(fault.kind == "kill" and fault.where == phase for fault in found) >= 20
    assert {world.place for world in worlds} == {"local", "full", "s3"}
    assert {world.sink for world in worlds} == {"delta", "parquet"}
    assert worlds == plan_worlds(3)
    assert worlds != plan_worlds(4)


def test_oracle_detects_loss_duplicate_truncation_and_wrong_vector(tmp_path: Path):
    from tests.faults.attempts import launcher
    from tests.faults.oracle import vectors

    corpus = make_corpus(tmp_path / "corpus", 1, documents=40)
    job = Job(corpus.paths, str(tmp_path / "table"), "parquet", {})
    with launcher() as start:
        assert start.run(job).how == "done"
    expected = vectors(job)

    def look() -> Findings:
        return inspect(job, corpus, expected, finished=True)

    assert look().clean
    other = {**expected, "d1": ((1,), (1,), "x")}
    assert inspect(job, corpus, other, finished=True).wrong == 1

    part = next(iter(sorted((tmp_path / "table").glob("bucket=*/part-*"))))
    whole = part.read_bytes()
    part.write_bytes(whole[:-20])
    assert (look().torn_visible, look().lost > 0) == (1, True)
    part.write_bytes(whole)

    log = tmp_path / "table" / "_manifest"
    commit = max(log.glob("*.json"))
    again = json.loads(
        next(path for path in sorted(log.glob("*.json")) if b'"adds":[{' in path.read_bytes()).read_bytes()
    )
    for number, add in enumerate(again["adds"]):
        copy = part.with_name(f"copy-{number}.parquet")
        copy.write_bytes((tmp_path / "table" / add["path"]).read_bytes())
        add["path"] = f"{copy.parent.name}/{copy.name}"
    (log / f"{int(commit.stem) + 1:020d}.json").write_text(json.dumps(again))
    assert look().doubled == sum(add["rows"] for add in again["adds"])
