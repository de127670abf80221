"""Some of the faults of ``make faults`` with a fixed seed."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.faults.campaign import plan_worlds
from tests.faults.chain import make_chain
from tests.faults.corpus import make_corpus
from tests.faults.mutant import Mutant
from tests.faults.mutants import MUTANTS
from tests.faults.mutation import mutated, run_mutants
from tests.faults.oracle import Findings, inspect
from tests.faults.protocol import Job
from tests.faults.scenarios import SCENARIOS
from tests.faults.worlds import PHASES

ROOT = Path(__file__).parents[2]


def faults(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.faults", "--seed", "20", *arguments]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    return json.loads(done.stdout.rpartition("RESULT ")[2])


@pytest.mark.long
def test_wrong_protocols_are_detected_and_a_crash_is_no_detection(tmp_path: Path):
    names = ["no fence", "commit from a fresh handle", "increment deletes rows that stay"]
    wrong = [mutant for mutant in MUTANTS if mutant.name in names]
    edits = (("= check_row_counts(mine,", "= undefined(mine,"),)
    broken = Mutant("broken", "encoding/cells/lookup.py", edits, "killed_before_a_commit")
    *verdicts, crashed = run_mutants(tmp_path, make_chain(1), [*wrong, broken])
    assert [verdict.mutant.name for verdict in verdicts if verdict.caught] == [mutant.name for mutant in wrong]
    assert len(wrong) == len(names)
    assert not crashed.caught
    assert crashed.crash.startswith("NameError")


def test_mutants_fit_the_code(tmp_path: Path):
    assert len(MUTANTS) >= 12
    assert {mutant.scenario for mutant in MUTANTS} <= set(SCENARIOS)
    for mutant in MUTANTS:
        text = (ROOT / "lsr_prod" / mutant.file).read_text()
        assert [text.count(old) for old, _ in mutant.edits] == [1] * len(mutant.edits), mutant.name
    stale = Mutant("stale", "encoding/tables/table.py", (("no such text", ""),), "chain_without_faults")
    problem = r"mutant 'stale': encoding/tables/table.py has 0 times 'no such text', not once"
    with pytest.raises(ValueError, match=problem), mutated(tmp_path / "code", stale):
        pass


def test_some_of_the_faults_lose_duplicate_and_truncate_nothing():
    result = faults("--share", "100", "--parts", "committers", "resume", "--places", "local", "s3")
    assert result["faults"] >= 4
    assert {result[kind] for kind in ("lost", "doubled", "torn_visible", "wrong")} == {0}
    assert result["redone"] <= result["largest_wave"]


@pytest.mark.slow
def test_tenth_of_the_faults_loses_duplicates_and_truncates_nothing():
    result = faults("--share", "14", "--parts", "committers", "resume")
    assert result["faults"] >= 20
    assert {result[kind] for kind in ("lost", "doubled", "torn_visible", "wrong")} == {0}
    kinds = {kind.partition(".")[0] for kind in result["landed"]}
    maintenance = {"compact", "vacuum", "source"}
    assert kinds == {"kill", "eio", "enospc", "torn", "missing", "landed", "refused", "zombie", "skew"} | maintenance
    assert result["in_increments"] >= 5
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
    assert len(found) >= 300
    for phase in PHASES:
        assert sum(fault.kind == "kill" and fault.where == phase for fault in found) >= 20
    assert {world.place for world in worlds} == {"local", "full", "s3"}
    assert worlds == plan_worlds(3)
    assert worlds != plan_worlds(4)


@pytest.mark.long
def test_oracle_detects_loss_duplicate_truncation_and_wrong_vector(tmp_path: Path):
    from tests.faults.attempts import launcher
    from tests.faults.oracle import vectors

    corpus = make_corpus(tmp_path / "corpus", 1, documents=40)
    job = Job(corpus.paths, str(tmp_path / "table"), {})
    with launcher() as start:
        assert start.run(job).how == "done"
    expected = vectors(job)

    def look() -> Findings:
        return inspect(job, corpus, expected, finished=True)

    assert look().clean
    other = {**expected, "d1": frozenset({((1,), (1,), "x", 0)})}
    assert inspect(job, corpus, other, finished=True).wrong == 1

    part = next(iter(sorted((tmp_path / "table").glob("bucket=*/part-*"))))
    whole = part.read_bytes()
    part.write_bytes(whole[:-20])
    assert (look().torn_visible, look().lost > 0) == (1, True)
    part.write_bytes(whole)

    log = tmp_path / "table" / "_delta_log"
    commits = sorted(log.glob("*.json"))
    lines = next(path for path in commits if b'"add":' in path.read_bytes()).read_text().splitlines()
    again = [action for action in map(json.loads, lines) if "add" in action]
    for number, action in enumerate(again):
        copy = part.with_name(f"copy-{number}.parquet")
        copy.write_bytes((tmp_path / "table" / action["add"]["path"]).read_bytes())
        action["add"]["path"] = f"{copy.parent.name}/{copy.name}"
    (log / f"{int(commits[-1].stem) + 1:020d}.json").write_text("".join(json.dumps(action) + "\n" for action in again))
    assert look().doubled == sum(json.loads(action["add"]["stats"])["numRecords"] for action in again)
