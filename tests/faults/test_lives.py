"""A few of the random lives with fixed seeds, and what the harness of the lives itself has to do."""

import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from lsr_prod.encoding.cells import lookup
from lsr_prod.encoding.plans.encode_plan import Plan
from tests.faults.lives.campaign import run_life
from tests.faults.lives.expected import ModelStub, documents_of
from tests.faults.lives.script import LifeScript, Operation, draw, shorten
from tests.faults.lives.small import SmallSizes

ROOT = Path(__file__).parents[2]


def script(*operations: str, rule: str = "first") -> LifeScript:
    """Return a life whose operations have the arguments 0, 1 and 2, and so on."""
    named = [Operation(name, number, number + 1, number + 2) for number, name in enumerate(operations)]
    return LifeScript(rule, 2, 0.2, SmallSizes(1, 1, 1), tuple(named))


@pytest.mark.parametrize(
    ("first", "lives"), [(20, 5), *(pytest.param(first, 20, marks=pytest.mark.slow) for first in range(0, 60, 20))]
)
def test_lives_of_a_seed_lose_double_and_keep_nothing_stale(first: int, lives: int):
    counts: Counter[str] = Counter()
    for seed in range(first, first + lives):
        outcome = run_life(draw(seed))
        assert outcome.findings.sentences == [], f"repeat with python -m tests.faults --parts lives --life {seed}"
        counts += outcome.counts
    assert counts["refused"] < 0.3 * counts["nights"]
    assert counts["killed"] + counts["overtaken"] >= lives // 2


@pytest.mark.long
def test_command_repeats_a_life_and_counts_it():
    command = [sys.executable, "-m", "tests.faults", "--seed", "0", "--parts", "lives", "--life", "3"]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    result = json.loads(done.stdout.rpartition("RESULT ")[2])
    assert {result[kind] for kind in ("lost", "stale", "doubled", "wrong", "torn_visible")} == {0}
    assert result["lives"] == 1


@pytest.mark.long
def test_life_with_every_kind_of_operation_finds_nothing():
    source = ("add", "add", "copy", "edit", "append", "rename", "relocate", "touch", "truncate", "older", "empty")
    steps = [step for name in source for step in (name, "night")]
    steps += ["crash", "delete", "night", "index", "takedown", "restore", "bundle", "night", "index", "rollback"]
    outcome = run_life(script(*steps, "zombie", "compact", "purge", "vacuum", "collect"))
    assert outcome.findings.sentences == []
    assert outcome.counts["nights"] == 14


def test_second_delivery_in_the_first_night_is_encoded():
    life = LifeScript.from_json(
        '{"rule": "last", "buckets": 4, "overlap": 0.2, "sizes": [1, 2, 1], '
        '"operations": [["add", 582314, 513714, 413436], ["copy", 562616, 460177, 296230]]}'
    )
    assert run_life(life).findings.sentences == []


@pytest.mark.long
def test_increment_abandoned_between_its_waves_is_encoded():
    text = (
        '{"rule": "first", "buckets": 8, "overlap": 0.0, "sizes": [1, 8, 1], "operations": ['
        '["add", 839786, 103681, 786589], ["add", 472975, 112006, 56592], ["night", 501114, 642936, 610573], '
        '["add", 603998, 858054, 982390], ["add", 452095, 378044, 583077], ["crash", MOMENT, 877022, 767983], '
        '["truncate", 19201, 383678, 25538], ["night", 1, 122372, 677149]]}'
    )
    for moment in range(0, 1000, 50):  # which requests lie between two waves depends on their number
        outcome = run_life(LifeScript.from_json(text.replace("MOMENT", str(moment))))
        assert outcome.findings.sentences == []
        if outcome.counts["refused.abandon"] == 1:
            return
    pytest.fail("no kill was between two waves of the increment")


@pytest.mark.long
def test_forgotten_removal_and_wrong_order_of_duplicates_are_found(monkeypatch: pytest.MonkeyPatch):
    life = script("add", "add", "add", "night", "empty", "night")
    assert run_life(life).findings.clean
    with monkeypatch.context() as patch:
        patch.setattr(Plan, "of", classmethod(lambda cls, *parts: replace(_of(cls, *parts), removed=frozenset())))
        assert run_life(life).findings.stale
    choose = lookup.choose_rows
    monkeypatch.setattr(lookup, "choose_rows", lambda rows, _: choose(rows, "last"))
    assert run_life(life).findings.stale


_of = Plan.of.__func__  # type: ignore[attr-defined]


def test_documents_follow_from_the_order_of_the_files_and_the_rule():
    files = {
        "1/b.jsonl": b'{"_id": "x", "text": "early"}\n{"_id": "x", "text": "late"}\n{"_id": "y", "te',
        "2/a.jsonl": b'{"_id": "x", "text": "latest"}\n{"_id": "p", "text": "poison"}\n{"_id": "z", "text": " "}\n',
    }
    first, last = (documents_of(files, rule, ModelStub(0)) for rule in ("first", "last"))
    assert {doc_id: document.text for doc_id, document in first.items()} == {"x": "early"}
    assert {doc_id: document.text for doc_id, document in last.items()} == {"x": "latest"}
    assert documents_of(files, "first", ModelStub(1))["x"].impacts != first["x"].impacts


def test_lives_are_drawn_from_their_seed_and_printed_as_they_are():
    assert draw(3) == draw(3)
    assert draw(3) != draw(4)
    assert LifeScript.from_json(draw(3).to_json()) == draw(3)


def test_script_is_shortened_to_the_operations_that_fail():
    long = draw(5)
    kept = {long.operations[1], long.operations[-1]}
    assert set(shorten(long, lambda some: kept <= {*some.operations}).operations) == kept
