"""Garbage collection deletes only old files that no kept publication names."""

import os
import shutil
import subprocess
import sys
import time

import pytest

from lsr_prod.errors import PublicationError
from lsr_prod.indexing import build_index, collect_garbage, delete_documents, rollback
from lsr_prod.storage.publications import current_publication
from tests.indexing.contents import current, dump
from tests.indexing.corpus import Doc
from tests.indexing.increments import Increment, change_table, deployment, make_world

CORPUS = {f"doc{i:03d}": Doc({1: 1 + i % 255}, f"text {i}") for i in range(40)}
HOUR = 3600.0
KILLED = """
import os, signal, sys, threading
from pathlib import Path
from lsr_prod.indexing import collect_garbage
calls = 0
def count(frame, event, argument):
    global calls
    calls += event in ("call", "c_call")
    if calls == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
sys.setprofile(count)
threading.setprofile(count)
collect_garbage(Path(sys.argv[1]), keep=1, age_s=3600.0)
"""


@pytest.fixture
def index(tmp_path):
    """Return an index with six publications: a full build, three takedowns, a delta, a full build."""
    build_index(make_world(tmp_path, CORPUS))
    for number in range(3):
        delete_documents(tmp_path / "index", [f"doc{number:03d}"])
    change_table(tmp_path, Increment({"new": Doc({3: 3})}))
    build_index(deployment(tmp_path))
    build_index(deployment(tmp_path, shards=1))
    return tmp_path / "index"


def age(folder, hours):
    for path in [folder, *folder.rglob("*")]:
        then = path.stat().st_mtime - hours * HOUR
        os.utime(path, (then, then))


def names(index, *folders):
    return {path.name for folder in folders for path in (index / folder).iterdir()}


def test_young_files_are_kept(index):
    before = sorted(index.rglob("*"))
    assert collect_garbage(index, keep=1, age_s=HOUR).objects == 0
    assert sorted(index.rglob("*")) == before


def test_files_of_old_publications_are_deleted(index):
    age(index, 2)
    found = dump(index)
    folders = ("shards", "versions", "tombstones", "takedowns", "bundles")
    before = names(index, *folders)
    collected = collect_garbage(index, keep=1, age_s=HOUR)
    assert collected.publications == 5
    assert collected.objects == len(before) - len(names(index, *folders)) == 12
    assert names(index, "publications") == {"000006.json"}
    version = current(index)
    assert names(index, "shards") == {shard.sha for shard in version.shards}
    assert names(index, "versions") == {f"{version.sha}.json"}
    assert len(names(index, "tombstones", "takedowns")) == 2
    assert collected.size > 0
    assert dump(index) == found
    with pytest.raises(PublicationError, match="no publication 1"):
        rollback(index, 1)
    assert collect_garbage(index, keep=1, age_s=HOUR).objects == 0
    assert delete_documents(index, ["doc030"]).publication.number == 7


def test_rollback_to_a_kept_publication_works(index):
    age(index, 2)
    assert collect_garbage(index, keep=2, age_s=HOUR).publications == 4
    rollback(index, 5)
    assert "new" in dump(index)
    assert current_publication(index).number == 7
    assert collect_garbage(index, keep=10, age_s=0.0).publications == 0


def test_version_that_was_current_recently_is_kept(index):
    age(index, 2)
    newest = index / "publications" / "000006.json"
    os.utime(newest, (time.time(), time.time()))
    assert collect_garbage(index, keep=1, age_s=HOUR).publications == 4
    assert names(index, "publications") == {"000005.json", "000006.json"}
    rollback(index, 5)


def test_leftovers_of_an_interrupted_build_are_deleted(index):
    dead = index / "shards" / f".{'a' * 64}.{'b' * 32}.tmp"
    (dead / "impacts").mkdir(parents=True)
    (dead / "impacts" / "ids.npy").write_bytes(b"half")
    unnamed = index / "shards" / ("c" * 64)
    shutil.copytree(index / "shards" / current(index).shards[0].sha, unnamed)
    (index / "tombstones" / f".{'d' * 64}.npy.{'e' * 32}.tmp").write_bytes(b"")
    foreign = index / "shards" / "notes.txt"
    foreign.write_text("mine")
    age(index, 2)
    live = index / "shards" / f".{'f' * 64}.{'0' * 32}.tmp"
    live.mkdir()
    collected = collect_garbage(index, keep=10, age_s=HOUR)
    assert collected.objects == 3
    assert not dead.exists()
    assert not unnamed.exists()
    assert live.exists()
    assert foreign.exists()


def test_files_that_a_build_reuses_are_kept(index, tmp_path):
    age(index, 2)
    build_index(deployment(tmp_path, table_version=1, publish=False))  # reuses the two shards of the first build
    assert collect_garbage(index, keep=1, age_s=HOUR).publications == 5
    build_index(deployment(tmp_path, table_version=1))
    assert len(dump(index)) == 37


@pytest.mark.long
def test_interrupted_garbage_collection_leaves_a_valid_index(index):
    age(index, 2)
    found = dump(index)
    for calls in (600, 1500, 2500, 3500, 4500):
        command = [sys.executable, "-c", KILLED, str(index), str(calls)]
        assert subprocess.run(command, timeout=60).returncode in (0, -9)
        assert dump(index) == found
    age(index, 2)  # drafts of the killed runs are as young as their death
    collect_garbage(index, keep=1, age_s=HOUR)
    assert names(index, "shards") == {shard.sha for shard in current(index).shards}
    assert dump(index) == found
