"""The gate completeness refuses a version that lacks documents of the source, and is off where no source is read."""

import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from lsr_prod.errors import PublicationError
from lsr_prod.indexing.publish import Candidate
from lsr_prod.operations.gates import GATES, Gatekeeper, GateResult
from lsr_prod.operations.gates import report as gate
from lsr_prod.operations.gates.report import Versions
from lsr_prod.storage.formats.index_format import IndexVersion
from tests.operations.audit.worlds import World, documents

FILES = {"a.jsonl": [{"_id": f"d{i}", "text": f"text of {i}", "title": f"title {i}"} for i in range(40)]}
IDS = [f"d{i}" for i in range(40)]


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.write_source(FILES)
    made.make_table(documents(FILES))
    return made


def result(world: World, version: IndexVersion, **limits: object) -> GateResult:
    candidate = Candidate(world.folder / "index", version, None, False)
    return GATES["completeness"](Versions(candidate, world.deployment(**limits), world.files()))


def test_complete_version_passes(world: World):
    found = result(world, world.make_index(IDS))
    assert (found.verdict, found.measured, found.sentence) == ("passed", 0, "40 documents of the source are compared")


def test_version_that_lacks_a_document_is_refused_with_its_id(world: World):
    version = world.make_index(IDS[1:])
    found = result(world, version)
    assert (found.verdict, found.measured, found.limit) == ("refused", 1, 0)
    assert found.sentence == ("40 documents of the source are compared; 1 index missing: d0, above gates.max_lost = 0")
    assert result(world, version, max_lost=1).verdict == "passed"
    assert result(world, version, max_lost=None).verdict == "off"


def test_version_of_table_that_lost_a_part_is_refused(world: World):
    part = world.table.files()[0]
    world.table.commit([], [part.path], app="hand", version=0, epoch=1)
    found = result(world, world.make_index(IDS))
    assert (found.verdict, found.measured) == ("refused", 2 * (part.rows or 0))  # not in the table, only in the index


@pytest.mark.parametrize(("on_damage", "verdict"), [("fail", "refused"), ("skip", "passed")])
def test_damage_of_the_source_is_refused_unless_the_source_accepts_it(world: World, on_damage: str, verdict: str):
    lines = b"".join(b'{"_id": "z%d", "text": "x"}\n' % i for i in range(9))
    (world.folder / "source" / "z.jsonl.gz").write_bytes(gzip.compress(lines, mtime=0)[:20])
    version, given = world.make_index(IDS), world.deployment()
    assert given.source is not None
    given = given.model_copy(update={"source": given.source.model_copy(update={"on_damage": on_damage})})
    candidate = Candidate(world.folder / "index", version, None, False)
    assert GATES["completeness"](Versions(candidate, given, world.files())).verdict == verdict


def test_stored_fields_are_compared_where_all_is_verified(world: World):
    version = world.make_index(IDS)
    world.write_source({"a.jsonl": [{**row, "title": "new"} for row in FILES["a.jsonl"]]})
    assert result(world, version).verdict == "passed"
    assert result(world, version, verify="all").verdict == "refused"


def test_sample_of_a_large_corpus_has_other_ids_for_every_version(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gate, "_SAMPLE", 10)
    version = world.make_index(IDS)
    shares = {
        result(world, replace(version, dk=dk)).sentence.partition(" ")[0]
        for dk in range(1, 9)
        if "one of 4" in result(world, replace(version, dk=dk)).sentence
    }
    assert len(shares) > 1
    assert all(0 < int(count) < 40 for count in shares)


def test_gate_is_off_in_a_job_that_reads_no_source(world: World):
    candidate = Candidate(world.folder / "index", world.make_index(IDS[1:]), None, False)
    found = GATES["completeness"](Versions(candidate, world.deployment()))
    assert (found.verdict, found.sentence) == ("off", "this job does not read the source")


def test_refused_version_is_published_by_force_with_a_reason(world: World):
    version = world.make_index(IDS[1:])
    candidate = Candidate(world.folder / "index", version, None, False)
    limits = world.deployment(max_impact_error=None)
    gatekeeper = Gatekeeper(limits)
    gatekeeper.files = world.files()
    with pytest.raises(PublicationError, match="1 index missing: d0"):
        gatekeeper(candidate)
    forced = Gatekeeper(limits, ["completeness"], "the document is on its way")
    forced.files = world.files()
    assert [(one.gate, one.reason) for one in forced(candidate).forced] == [
        ("completeness", "the document is on its way")
    ]
