"""Sixteen processes commit to one table at once: every commit is in the table exactly once, for each store."""

import json
import multiprocessing
import random
import time
import uuid
from pathlib import Path

import pytest

from lsr_prod.encoding.commit.committer import Committer, waves_done
from lsr_prod.encoding.commit.fence import take_epoch
from lsr_prod.encoding.tables.quarantine_rows import create_quarantine
from lsr_prod.encoding.tables.sparse_table import create_sparse_table
from lsr_prod.errors import FencedError
from lsr_prod.storage import Store
from tests.encoding.made_tables import PROPERTIES, as_wave, bad_rows, ids_of, make_cell, newest

WRITERS, COMMITS = 16, 20


@pytest.mark.long
def test_four_concurrent_writers_commit_exactly_once(tmp_path: Path) -> None:
    for role in ("own", "shared"):
        race(role, {"uri": str(tmp_path / role), "options": {}}, writers=4, commits=4)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["local", "s3"])
@pytest.mark.parametrize("role", ["own", "shared"])
def test_sixteen_concurrent_writers_commit_exactly_once(
    request: pytest.FixtureRequest, tmp_path: Path, role: str, place: str
) -> None:
    table = {"uri": str(tmp_path / "table"), "options": {}}
    if place == "s3":
        table = {"uri": f"s3://lsr/{uuid.uuid4().hex}/t", "options": request.getfixturevalue("s3_options")}
    race(role, table, writers=WRITERS, commits=COMMITS)


def race(role: str, place: dict, *, writers: int, commits: int) -> None:
    """Run the writers and count the committed documents.

    Args:
        role: ``own``: each writer has its own plan. ``shared``: all attempt the same plan.
        place: the table.
        writers: processes.
        commits: waves of every plan.
    """
    table, quarantine = stores(place)
    create_sparse_table(table, PROPERTIES, "p")
    create_quarantine(quarantine)
    began = time.monotonic()
    start = multiprocessing.get_context("forkserver")
    running = [start.Process(target=write, args=(role, number, commits, place)) for number in range(writers)]
    for process in running:
        process.start()
    for process in running:
        process.join(900)
    assert [process.exitcode for process in running] == [0] * writers
    plans = writers if role == "own" else 1
    wanted = sorted(name(number, wave) for number in range(plans) for wave in range(commits))
    found = ids_of(table)
    lost, doubled = len(set(wanted) - set(found)), len(found) - len(set(found))
    quarantined = sum(bad_rows(quarantine, plan(role, number)) for number in range(plans))
    counts = {
        "role": role, "writers": writers, "commits": plans * commits, "lost": lost, "doubled": doubled,
        "quarantined": quarantined, "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip
    print(json.dumps(counts))
    assert found == wanted
    assert quarantined == plans * commits
    assert all(waves_done(newest(table), plan(role, number)) == commits for number in range(plans))


def stores(place: dict) -> tuple[Store, Store]:
    return Store(place["uri"], place["options"]), Store(f"{place['uri']}_quarantine", place["options"])


def plan(role: str, number: int) -> str:
    return f"plan{number}" if role == "own" else "plan"


def name(number: int, wave: int) -> str:
    """Return the character that is the only document of a wave."""
    return chr(0x4E00 + number * 64 + wave)


def write(role: str, number: int, commits: int, place: dict) -> None:
    """Commit every wave of a plan; a fenced attempt starts again after an increasing pause, like a retried job."""
    pause, dice = 0.1, random.Random(number)
    table, quarantine = stores(place)
    mine = plan(role, number)
    document = number if role == "own" else 0
    while waves_done(newest(table), mine) < commits:
        committer = Committer(take_epoch(table, mine, []), table, quarantine)
        try:
            committer.fence()
            for wave in range(waves_done(newest(table), mine), commits):
                cell = make_cell(table, quarantine, wave, name(document, wave), "x", cell=number % 2, plan=mine)
                committer.commit(as_wave(wave, cell))
        except FencedError:
            time.sleep(dice.uniform(0, pause))
            pause *= 2
