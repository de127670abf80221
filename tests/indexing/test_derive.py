"""Index versions built from increments are compared with an index that is built in full from the same table."""

import random
from dataclasses import replace

import pytest

from lsr_prod.encoding.tables import open_table
from lsr_prod.errors import PublicationError
from lsr_prod.indexing import build_index, delete_documents, derive
from lsr_prod.indexing.publish import Approval
from lsr_prod.operations.maintenance import compact, vacuum
from lsr_prod.storage import Store
from lsr_prod.storage.publications import current_publication
from tests.indexing.contents import current, dump
from tests.indexing.corpus import Doc, make_bundle, make_table
from tests.indexing.increments import (
    VOCABULARY,
    Increment,
    change_table,
    deployment,
    make_world,
    random_doc,
    random_increment,
)


@pytest.fixture
def corpus():
    dice = random.Random(11)
    return {f"doc{i:03d}": random_doc(dice) for i in range(400)}


@pytest.fixture
def world(tmp_path, corpus):
    """Return a folder with an index of 400 documents in two shards, and its table."""
    build_index(make_world(tmp_path, corpus))
    return tmp_path


def check(root, corpus):
    """Assert that the index holds the corpus, as does an index that is built in full."""
    found = dump(root / "index")
    assert {i: (dict(pairs), text) for i, (pairs, text) in found.items()} == {
        i: (dict(doc.terms), doc.text) for i, doc in corpus.items()
    }
    whole = build_index(deployment(root, f"whole{current_publication(root / 'index').number}", max_delta=0))
    assert whole.mode == "full"
    assert dump(root / f"whole{current_publication(root / 'index').number}") == found


def test_small_change_adds_one_delta_shard_and_tombstones(world, corpus):
    before = current(world / "index")
    increment = Increment({"new": Doc({3: 7}, "new"), "doc001": Doc({4: 9}, "changed")}, ["doc002", "doc003"])
    change_table(world, increment)
    summary = build_index(deployment(world))
    picked = ("mode", "reason", "upserts", "deletes", "documents", "documents_rebuilt", "shards_reused", "tombstones")
    assert [getattr(summary, name) for name in picked] == ["delta", "", 2, 2, 399, 2, 2, 3]
    assert 0 < summary.bytes_written < 20_000
    version = current(world / "index")
    assert version.shards[:2] == before.shards
    assert [shard.role for shard in version.shards] == ["base", "base", "delta"]
    assert version.tombstones[2] is None
    check(world, increment.after(corpus))
    again = build_index(deployment(world))
    assert (again.mode, again.publication, again.bytes_written) == ("unchanged", 2, 0)


def test_deletes_alone_add_no_shard(world, corpus):
    increment = Increment({}, ["doc002"])
    change_table(world, increment)
    summary = build_index(deployment(world))
    assert (summary.mode, summary.shards, summary.documents_rebuilt) == ("delta", 2, 0)
    check(world, increment.after(corpus))


@pytest.mark.long
def test_document_that_changes_repeatedly_is_found_once(world, corpus):
    for number in range(4):
        increment = Increment({"doc001": Doc({number: 1 + number}, str(number)), "new": Doc({9: 1 + number})})
        change_table(world, increment)
        corpus = increment.after(corpus)
        assert build_index(deployment(world)).mode == "delta"
        check(world, corpus)
    gone = Increment({}, ["doc001", "new"])
    change_table(world, gone)
    build_index(deployment(world))
    check(world, gone.after(corpus))
    change_table(world, Increment({"new": Doc({9: 4})}))
    assert build_index(deployment(world)).shards_reused == 6
    check(world, {**gone.after(corpus), "new": Doc({9: 4})})


@pytest.mark.long
def test_delta_shards_are_merged_when_there_are_too_many(world, corpus):
    dice, modes, rebuilt = random.Random(2), [], 0
    for number in range(12):
        increment = random_increment(dice, corpus, 0.0025, f"n{number:02d}-")
        change_table(world, increment)
        corpus = increment.after(corpus)
        summary = build_index(deployment(world, max_delta=0.5, max_delta_shards=3))
        modes.append(summary.mode)
        rebuilt += summary.documents_rebuilt
        assert summary.shards <= 5
        assert len(dump(world / "index")) == len(corpus)
    check(world, corpus)
    assert modes[:4] == ["delta", "delta", "delta", "merge"]
    assert "delta" in modes[4:]
    assert rebuilt < 12 * 8
    fewer = build_index(deployment(world, max_delta=0.5, max_delta_shards=1))
    assert fewer.mode in ("merge", "unchanged")
    assert fewer.shards == 3
    check(world, corpus)


def test_lower_limit_of_delta_shards_merges_those_of_an_unchanged_table(world, corpus):
    for name in ("one", "two"):
        increment = Increment({name: Doc({3: 7}, name)})
        change_table(world, increment)
        corpus = increment.after(corpus)
        assert build_index(deployment(world, max_delta_shards=2)).mode == "delta"
    assert build_index(deployment(world, max_delta_shards=2)).mode == "unchanged"
    fewer = build_index(deployment(world, max_delta_shards=1))
    assert (fewer.mode, fewer.shards) == ("merge", 3)
    check(world, corpus)


@pytest.mark.parametrize("meets", ["takedown", "build"])
def test_changes_are_looked_up_again_only_if_another_build_came_first(world, corpus, monkeypatch, meets):
    looks, compare = [], derive.compare_table
    monkeypatch.setattr(derive, "compare_table", lambda *given: looks.append(given) or compare(*given))
    increment = Increment({"new": Doc({3: 7}, "new")}, ["doc002"])
    change_table(world, increment)

    def inspect(candidate):
        if len(looks) == 1:
            if meets == "build":
                assert build_index(deployment(world, max_delta=0)).mode == "full"
            else:
                delete_documents(world / "index", ["doc005"])
                looks.append("takedown")
        return Approval()

    summary = build_index(deployment(world), inspect)
    assert (summary.mode, len(looks)) == (("unchanged", 3) if meets == "build" else ("delta", 2))
    assert (summary.documents, summary.shards) == ((400, 2) if meets == "build" else (399, 3))


def test_version_whose_files_an_object_store_has_lost_is_built_again(tmp_path, monkeypatch):
    dice = random.Random(11)
    monkeypatch.setattr(derive, "is_remote", lambda _: True)
    assert build_index(make_world(tmp_path, {f"doc{i}": random_doc(dice) for i in range(20)})).mode == "full"
    shard = current(tmp_path / "index").shards[0].sha
    next(path for path in (tmp_path / "index" / "shards" / shard).rglob("*") if path.is_file()).unlink()
    change_table(tmp_path, Increment({"new": Doc({3: 7}, "new")}))
    summary = build_index(deployment(tmp_path))
    assert (summary.mode, summary.reason) == ("full", "files of the current version are missing")


def test_version_that_lacks_a_document_of_its_delta_shard_is_refused(world, monkeypatch):
    build = derive._build_delta

    def lossy(*given):
        version, built = build(*given)
        return replace(version, shards=version.shards[:-1], tombstones=version.tombstones[:-1]), built

    monkeypatch.setattr(derive, "_build_delta", lossy)
    change_table(world, Increment({"new": Doc({3: 7}, "new")}, ["doc002", "doc003"]))
    with pytest.raises(
        PublicationError, match="the shards hold 398 documents, but the table 399; build the index again"
    ):
        build_index(deployment(world))


@pytest.mark.long
def test_all_shards_are_built_beyond_max_delta(world, corpus):
    dice, modes = random.Random(3), []
    for number in range(4):
        increment = random_increment(dice, corpus, 0.01, f"n{number}-")
        change_table(world, increment)
        corpus = increment.after(corpus)
        modes.append(build_index(deployment(world)).mode)
        check(world, corpus)
    assert modes == ["delta", "delta", "full", "delta"]
    at_once = random_increment(dice, corpus, 0.2, "x")
    change_table(world, at_once)
    summary = build_index(deployment(world))
    assert summary.reason == "more than index.max_delta=0.1 of the documents changed"
    check(world, at_once.after(corpus))


def test_takedowns_of_ids_that_the_index_lacks_do_not_delay_a_rebuild(world, corpus):
    delete_documents(world / "index", [f"unknown{i}" for i in range(1000)])
    modes = []
    for _ in range(4):
        gone = Increment({}, sorted(corpus)[: len(corpus) // 25])
        change_table(world, gone)
        corpus = gone.after(corpus)
        modes.append(build_index(deployment(world)).mode)
        check(world, corpus)
    assert modes == ["delta", "delta", "full", "delta"]


def test_compaction_of_the_table_leaves_the_index_unchanged(world, corpus):
    change_table(world, Increment({"new": Doc({3: 7}, "new")}))
    build_index(deployment(world))
    compact(Store(str(world / "table")), 1_000_000)
    summary = build_index(deployment(world))
    assert (summary.mode, summary.publication, summary.bytes_written) == ("unchanged", 2, 0)
    change_table(world, Increment({"more": Doc({3: 7}, "more")}))
    assert build_index(deployment(world)).upserts == 1
    check(world, {**corpus, "new": Doc({3: 7}, "new"), "more": Doc({3: 7}, "more")})


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"shards": 3}, "settings"), ({"dk": 3}, "settings"), ({"bm25": True}, "settings")],
)
def test_changed_settings_build_all_shards(world, corpus, changes, reason):
    change_table(world, Increment({"new": Doc({3: 7}, "new")}))
    summary = build_index(deployment(world, **changes))
    assert summary.mode == "full"
    assert reason in summary.reason
    assert len(dump(world / "index")) == 401


def test_another_table_with_the_same_name_builds_all_shards(world, corpus):
    (world / "table").rename(world / "former")
    other = {i: Doc({5: 5}, "other") for i in corpus}
    make_table(world / "table", other, world / "bundle", store_k=16)
    change_table(world, Increment({"new": Doc({3: 7}, "new")}))
    summary = build_index(deployment(world))
    assert (summary.mode, "no longer has version 1" in summary.reason) == ("full", True)
    check(world, {**other, "new": Doc({3: 7}, "new")})


def test_another_bundle_builds_all_shards(world, corpus):
    make_bundle(world / "other", [f"u{i}" for i in range(VOCABULARY)])
    (world / "table").rename(world / "former")
    make_table(world / "table", corpus, world / "other", store_k=16)
    summary = build_index(deployment(world, bundle=str(world / "other")))
    assert (summary.mode, summary.reason) == ("full", "another table or bundle")


def test_table_without_its_old_parts_builds_all_shards(world, corpus):
    change_table(world, Increment({"doc001": Doc({3: 7}, "new")}))
    assert vacuum(Store(str(world / "table")), 0.0).entries
    summary = build_index(deployment(world))
    assert (summary.mode, "no longer has version 1" in summary.reason) == ("full", True)


def test_index_can_return_to_an_older_version_of_the_table(world, corpus):
    increment = random_increment(random.Random(5), corpus, 0.01, "n")
    change_table(world, increment)
    build_index(deployment(world))
    summary = build_index(deployment(world, table_version=1))
    assert (summary.mode, summary.upserts, summary.deletes) == ("delta", 8, 4)
    assert set(dump(world / "index")) == set(corpus)
    assert build_index(deployment(world, max_delta=0.5)).upserts == 8
    check(world, increment.after(corpus))


def test_empty_index_grows_and_shrinks(tmp_path):
    build_index(make_world(tmp_path, {}))
    assert dump(tmp_path / "index") == {}
    change_table(tmp_path, Increment({"one": Doc({1: 2}, "x")}))
    assert build_index(deployment(tmp_path)).mode == "full"
    check(tmp_path, {"one": Doc({1: 2}, "x")})
    change_table(tmp_path, Increment({}, ["one"]))
    assert build_index(deployment(tmp_path)).documents == 0


def test_delta_shards_with_equal_rows_have_equal_names(world, corpus):
    change_table(world, Increment({"new": Doc({3: 7}, "new")}))
    build_index(deployment(world))
    first = current(world / "index").shards[2].sha
    build_index(deployment(world, "other", table_version=1))
    compact(Store(str(world / "table")), 1_000_000)
    build_index(deployment(world, "other"))
    assert open_table(Store(str(world / "table"))).version == 3
    assert current(world / "other").shards[2].sha == first
