"""Takedowns hide documents at once and in every later build, also with concurrent publishers; they can be restored."""

import json
import subprocess
import sys

import pytest

from lsr_prod.errors import ArtifactError, PublicationError
from lsr_prod.indexing import build_index, delete_documents, restore_documents, rollback
from lsr_prod.jobs import index as jobs
from lsr_prod.storage.index_versions import read_version
from lsr_prod.storage.publications import current_publication, read_publication
from tests.indexing.contents import current, dump, takedowns
from tests.indexing.corpus import Doc
from tests.indexing.increments import Increment, change_table, deployment, make_world
from tests.indexing.publishing import publish

CORPUS = {f"doc{i:03d}": Doc({1: 1 + i % 255, i % 60: 4}, f"text {i}") for i in range(200)}

TAKE_DOWN = """
import sys
from pathlib import Path
from lsr_prod.indexing import delete_documents
for one in sys.argv[2:]:
    delete_documents(Path(sys.argv[1]), [one])
"""
BUILD = """
import sys
from pathlib import Path
from lsr_prod.indexing import build_index
from tests.indexing.corpus import Doc
from tests.indexing.increments import Increment, change_table, deployment
root = Path(sys.argv[1])
for i in range(6):
    change_table(root, Increment({f"new{i}": Doc({5: 1 + i}), f"doc{i:03d}": Doc({6: 1 + i}, "again")}))
    build_index(deployment(root, max_delta=0.5, max_delta_shards=2))
"""
ROLL_BACK = """
import sys
from pathlib import Path
from lsr_prod.indexing import rollback
for _ in range(6):
    rollback(Path(sys.argv[1]), 1)
"""


@pytest.fixture
def world(tmp_path):
    build_index(make_world(tmp_path, CORPUS))
    return tmp_path


def test_takedown_hides_documents_at_once(world, caplog, monkeypatch):
    index = world / "index"
    assert delete_documents(index, ["doc000"]).unknown == ()
    assert not caplog.records
    restore_documents(index, ["doc000"])
    done = delete_documents(index, ["doc001", "doc002", "doc001", "later"], "request 17")
    assert (done.publication.number, done.publication.note) == (4, "request 17")
    assert (done.changed, done.documents, done.takedowns, done.unknown) == (2, 198, 3, ("later",))
    assert [record.fields for record in caplog.records] == [{"unknown": 1, "ids": 3, "first": "later"}]
    assert set(CORPUS) - set(dump(index)) == {"doc001", "doc002"}
    assert takedowns(index) == ["doc001", "doc002", "later"]
    with monkeypatch.context() as patch:
        patch.setattr("lsr_prod.indexing.takedown.find_documents", None)  # no shard is searched for known ids
        again = delete_documents(index, ["doc002", "later"])
    assert (again.publication.number, again.changed, again.unknown) == (4, 0, ())


def test_every_later_build_hides_taken_down_documents(world):
    index = world / "index"
    delete_documents(index, ["doc001", "doc002", "later"])
    change_table(world, Increment({"doc001": Doc({9: 9}, "encoded again"), "later": Doc({3: 3})}))
    summary = build_index(deployment(world))
    assert (summary.mode, summary.documents, summary.tombstones) == ("delta", 198, 4)
    assert not {"doc001", "doc002", "later"} & set(dump(index))
    change_table(world, Increment({"doc050": Doc({9: 9})}))
    assert build_index(deployment(world, max_delta_shards=1)).mode == "merge"
    assert not {"doc001", "doc002", "later"} & set(dump(index))
    assert build_index(deployment(world, shards=3)).mode == "full"
    assert not {"doc001", "doc002", "later"} & set(dump(index))
    assert build_index(deployment(world, shards=3)).mode == "unchanged"
    change_table(world, Increment({}, ["doc002", "doc007"]))
    build_index(deployment(world, shards=3))
    assert set(dump(index)) == set(CORPUS) - {"doc001", "doc002", "doc007"}


def test_restored_document_is_found_as_in_the_table(world):
    index = world / "index"
    before = dump(index)
    delete_documents(index, ["doc001", "doc002", "doc003", "later"])
    done = restore_documents(index, ["doc001", "doc099"])
    assert (done.changed, done.documents, done.takedowns) == (1, 198, 3)
    assert dump(index)["doc001"] == before["doc001"]
    change_table(
        world, Increment({"doc002": Doc({9: 9}, "changed while it was down"), "later": Doc({3: 3})}, ["doc003"])
    )
    build_index(deployment(world))
    restore_documents(index, ["doc002", "doc003", "later"])
    assert current(index).takedowns is None
    found = dump(index)
    assert set(found) == (set(CORPUS) | {"later"}) - {"doc003"}
    assert found["doc002"] == (((9, 9),), "changed while it was down")
    build_index(deployment(world, "whole"))
    assert dump(world / "whole") == found
    assert build_index(deployment(world)).mode == "unchanged"


def test_document_taken_down_during_a_merge_can_be_restored(world):
    index = world / "index"
    change_table(world, Increment({"new": Doc({3: 3})}))
    build_index(deployment(world))
    delete_documents(index, ["new"])
    change_table(world, Increment({"more": Doc({4: 3})}))
    assert build_index(deployment(world, max_delta_shards=1)).mode == "merge"
    assert restore_documents(index, ["new"]).changed == 1
    assert set(dump(index)) == {*CORPUS, "new", "more"}


def test_rollback_keeps_later_takedowns(world):
    index = world / "index"
    change_table(world, Increment({"new": Doc({3: 3}), "doc009": Doc({8: 8})}))
    build_index(deployment(world))
    delete_documents(index, ["doc001", "new"])
    back = rollback(index, 1)
    assert (back.number, back.note) == (4, "rollback to 1")
    assert set(dump(index)) == set(CORPUS) - {"doc001"}
    assert takedowns(index) == ["doc001", "new"]
    assert build_index(deployment(world)).mode == "delta"
    assert set(dump(index)) == set(CORPUS) - {"doc001"}
    restore_documents(index, ["doc001"])
    rollback(index, 3)
    assert "doc001" not in dump(index)
    assert takedowns(index) == ["doc001", "new"]


def test_publish_rejects_a_version_built_before_a_takedown(world):
    index = world / "index"
    change_table(world, Increment({"new": Doc({3: 3})}))
    unpublished = build_index(deployment(world, publish=False)).version
    delete_documents(index, ["doc001"])
    with pytest.raises(PublicationError, match="would bring back 1 document"):
        publish(index, unpublished)
    build_index(deployment(world))
    assert "doc001" not in dump(index)


@pytest.mark.long
def test_no_takedown_is_lost_with_concurrent_publishers(world):
    index = world / "index"
    down = [[f"doc{i:03d}" for i in range(start, 60, 3)] for start in range(3)]
    commands = [[TAKE_DOWN, str(index), *ids] for ids in down] + [[BUILD, str(world)], [ROLL_BACK, str(index)]]
    racers = [subprocess.Popen([sys.executable, "-c", *command]) for command in commands]
    assert [racer.wait(timeout=200) for racer in racers] == [0] * len(racers)
    gone = {i for ids in down for i in ids}
    assert set(takedowns(index)) == gone
    assert not gone & set(dump(index))
    newest = current_publication(index).number
    assert newest > 50
    seen: set[str] = set()
    for number in range(1, newest + 1):  # no later version has a document that was taken down
        found = set(dump(index, read_version(index, read_publication(index, number).version)))
        assert not seen & found
        seen |= gone - found
    build_index(deployment(world, max_delta=0.5))
    expected = {*CORPUS, *(f"new{i}" for i in range(6))} - gone
    assert set(dump(index)) == expected


def test_takedown_requires_a_publication_and_ids(tmp_path):
    with pytest.raises(PublicationError, match="no publication"):
        delete_documents(tmp_path, ["doc001"])
    for ids in ([], "doc001", b"doc001", ["doc001", 1]):  # the letters of a string are no ids
        with pytest.raises(PublicationError, match="no document is named"):
            delete_documents(tmp_path, ids)


def test_restore_requires_the_table(world):
    delete_documents(world / "index", ["doc001"])
    (world / "table").rename(world / "gone")
    with pytest.raises(ArtifactError, match="no longer a table"):
        restore_documents(world / "index", ["doc001"])
    assert current_publication(world / "index").number == 2


def test_takedown_job_reads_ids_from_a_file(world, capsys):
    (world / "config.yaml").write_text(
        f"index:\n  table: {world}/table\n  bundle: {world}/bundle\n  output: {world}/index\n"
    )
    (world / "ids.txt").write_bytes(b"\xef\xbb\xbfdoc001\r\ndoc 002\n\ndoc003\n")  # as editors of Windows save it
    config = ["--config", str(world / "config.yaml")]
    assert jobs.takedown.run([*config]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("lsr-prod index takedown: --id: no document is named")
    assert jobs.takedown.run([*config, "--file", str(world / "none.txt")]) == 2
    assert jobs.takedown.run([*config, "--file", str(world / "ids.txt"), "--id", "doc004", "--note", "two words"]) == 0
    printed = capsys.readouterr().out
    assert "│ first_unknown    │ doc 002" in printed
    result = json.loads(printed.splitlines()[-1].removeprefix("RESULT "))
    assert (result["unknown_ids"], result["first_unknown"]) == (1, "doc 002")
    assert (result["ids"], result["documents_hidden"], result["takedowns"], result["publication"]) == (4, 3, 4, 2)
    assert read_publication(world / "index", 2).note == "two words"
    assert jobs.restore.run([*config, "--id", "doc004"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1].removeprefix("RESULT "))
    assert (result["documents_restored"], result["documents"]) == (1, 198)
    (world / "odd.txt").write_text("a\u2028b\x85c\n")
    assert jobs.takedown.run([*config, "--file", str(world / "odd.txt")]) == 0
    assert "a\u2028b\x85c" in takedowns(world / "index")


def test_job_without_pages_ignores_the_section_for_them(world, capsys):
    section = f"index:\n  table: {world}/table\n  bundle: {world}/bundle\n  output: {world}/index\n"
    (world / "config.yaml").write_text(f"{section}report:\n  output: {world}/pages\n")
    assert jobs.takedown.run(["--config", str(world / "config.yaml"), "--id", "doc001"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("RESULT ")
    assert not (world / "pages").exists()


def test_rollback_job_keeps_later_takedowns(world, capsys):
    (world / "config.yaml").write_text(
        f"index:\n  table: {world}/table\n  bundle: {world}/bundle\n  output: {world}/index\n"
    )
    config = ["--config", str(world / "config.yaml")]
    delete_documents(world / "index", ["doc001"])
    delete_documents(world / "index", ["doc002"])
    assert jobs.rollback.run([*config, "--to", "2"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1].removeprefix("RESULT "))
    assert (result["from_publication"], result["publication"]) == (2, 3)  # nothing else has changed
    assert read_publication(world / "index", 3).version == result["version"]
    assert takedowns(world / "index") == ["doc001", "doc002"]


@pytest.mark.parametrize(
    ("argv", "code", "line"),
    [
        ([], 2, "lsr-prod index rollback: --to: no publication is named"),
        (["--to", "two"], 2, "lsr-prod index rollback: "),
        (["--to", "9"], 1, "lsr-prod index rollback failed: PublicationError: "),
    ],
)
def test_rollback_job_refuses_unknown_publication_in_one_line(world, capsys, argv, code, line):
    config = world / "config.yaml"
    config.write_text(f"index:\n  table: {world}/table\n  bundle: {world}/bundle\n  output: {world}/index\n")
    assert jobs.rollback.run(["--config", str(config), *argv]) == code
    captured = capsys.readouterr()
    assert captured.err.splitlines()[-1].startswith(line)
    assert captured.out == ""
    assert current_publication(world / "index").number == 1
