"""Indexes of a table whose rows were deleted with deletion vectors equal those of a table without these rows."""

import random
from pathlib import Path

import pyarrow as pa
import pytest

from lsr_prod.encoding.tables import Table, open_table
from lsr_prod.encoding.tables.live_rows import vector_files
from lsr_prod.indexing import build_index, delete_documents, restore_documents
from lsr_prod.indexing.base_shard import read_buckets
from lsr_prod.indexing.changes import changed_parts, changed_rows, find_rows, row_schema
from lsr_prod.indexing.impacts.postings import average_length
from lsr_prod.indexing.index_plan import digest_parts, plan_index
from lsr_prod.operations.maintenance import compact
from lsr_prod.storage import Store, deletion_vector
from lsr_prod.storage.formats.table_format import bucket_of
from tests.indexing.contents import dump
from tests.indexing.corpus import FIELDS, Doc
from tests.indexing.increments import Increment, delete_rows, deployment, make_world, random_doc, random_increment

DICE = random.Random(5)
CORPUS = {f"doc{i:03d}": random_doc(DICE) for i in range(80)}
INCREMENT = Increment({"new": Doc({3: 7}, "new"), "doc001": Doc({4: 9}, "changed")}, ["doc002", "doc003"])
AFTER = INCREMENT.after(CORPUS)


def snapshot(root: Path, version: int | None = None) -> Table:
    table = open_table(Store(str(root / "table")), version)
    assert table is not None
    return table


def compare(root: Path, old: int, new: int) -> tuple[set[str], set[str], int]:
    before, after = snapshot(root, old), snapshot(root, new)
    schema = row_schema(after, FIELDS)
    found = [changed_rows(after.store, part, schema) for part in changed_parts(before, after)]
    upserts, deletes = ({i for one in found for i in getattr(one, name).to_pylist()} for name in ("upserts", "deletes"))
    return upserts, deletes, sum(one.replaced for one in found)


@pytest.fixture
def world(tmp_path: Path) -> Path:
    make_world(tmp_path, CORPUS)
    return tmp_path


def indexed(root: Path, output: str) -> dict[str, tuple[dict[int, int], str | None]]:
    return {i: (dict(pairs), text) for i, (pairs, text) in dump(root / output).items()}


def test_full_and_delta_index_have_no_deleted_rows(world: Path):
    build_index(deployment(world))
    delete_rows(world, INCREMENT)
    wanted = {i: (dict(doc.terms), doc.text) for i, doc in AFTER.items()}
    delta, whole = build_index(deployment(world)), build_index(deployment(world, "whole"))
    assert (delta.mode, delta.upserts, delta.deletes, delta.documents) == ("delta", 2, 2, 79)
    assert (whole.mode, whole.documents) == ("full", 79)
    assert indexed(world, "index") == indexed(world, "whole") == wanted
    gone = Increment({}, ["doc004"])
    delete_rows(world, gone)  # now only the vectors differ
    assert build_index(deployment(world)).deletes == 1
    assert indexed(world, "index") == {i: one for i, one in wanted.items() if i != "doc004"}


def test_rows_of_shards_and_chosen_rows_are_not_deleted_ones(world: Path):
    delete_rows(world, INCREMENT)
    plan, table = plan_index(deployment(world)), snapshot(world)
    rows = [i for shard in plan.shards for part in read_buckets(shard) for i in part["doc_id"].to_pylist()]
    assert sorted(rows) == sorted(AFTER)
    assert sum(shard.documents for shard in plan.shards) == len(AFTER)
    ids = pa.array(["doc001", "doc002"], pa.large_string())
    found = find_rows(table.store, table.files(), row_schema(table, FIELDS), ids)
    assert found.select(["doc_id", "text"]).to_pylist() == [{"doc_id": "doc001", "text": "changed"}]


def test_plan_changes_with_the_deleted_rows(world: Path):
    delete_rows(world, Increment({}, ["doc002"]))
    first, digest = plan_index(deployment(world)), digest_parts(snapshot(world))
    delete_rows(world, Increment({}, ["doc003"]))
    second = plan_index(deployment(world))
    assert len({digest, digest_parts(snapshot(world)), digest_parts(snapshot(world, 1))}) == 3
    assert {shard.sha for shard in first.shards} != {shard.sha for shard in second.shards}


def test_average_length_counts_no_deleted_rows(world: Path):
    delete_rows(world, Increment({i: Doc({1: 1}, "one two") for i in CORPUS}))
    assert average_length(snapshot(world), ["text"]) == 2.0


def test_changes_between_versions_are_found_in_both_directions(tmp_path: Path):
    make_world(tmp_path, CORPUS)
    corpus, steps = CORPUS, [random_increment(DICE, CORPUS, 0.05, f"n{number}-") for number in range(2)]
    for step in steps:
        delete_rows(tmp_path, step)
        known = {*step.upserts} & {*corpus}
        version = snapshot(tmp_path).version
        assert compare(tmp_path, version - 1, version) == ({*step.upserts}, {*step.deletes} & {*corpus}, len(known))
        assert compare(tmp_path, version, version - 1) == (
            ({*step.upserts, *step.deletes}) & {*corpus},
            {*step.upserts} - {*corpus},
            len(known),
        )
        corpus = step.after(corpus)
    assert compare(tmp_path, 3, 3) == (set(), set(), 0)
    compact(snapshot(tmp_path).store, 1_000_000)
    assert compare(tmp_path, 3, snapshot(tmp_path).version) == (set(), set(), 0)


def test_rows_that_were_delivered_again_unchanged_do_not_count_as_changed(world: Path):
    again = {i: CORPUS[i] for i in sorted(CORPUS)[:40]}  # half of every part: it is read
    delete_rows(world, Increment({**again, "doc001": Doc({4: 9}, "changed")}, ["doc050"]))
    version = snapshot(world).version
    assert compare(world, version - 1, version) == ({"doc001"}, {"doc050"}, 1)
    delete_rows(world, Increment({"doc060": CORPUS["doc060"]}))  # one row of a part: it is not read
    assert compare(world, version, version + 1) == ({"doc060"}, set(), 1)


def test_end_of_a_takedown_restores_no_deleted_document(world: Path):
    build_index(deployment(world))
    delete_documents(world / "index", ["doc002", "doc005"])
    delete_rows(world, INCREMENT)
    build_index(deployment(world))
    assert restore_documents(world / "index", ["doc002", "doc005"]).changed == 1
    assert set(dump(world / "index")) == set(AFTER)


def test_index_is_built_in_full_when_vectors_of_its_version_were_deleted(world: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(deletion_vector, "_INLINE_BYTES", 0)  # a file even for few rows
    delete_rows(world, Increment({}, ["doc002"]))
    build_index(deployment(world))
    (name,) = vector_files(snapshot(world).file_table())
    bucket = next(int(file.partition["bucket"]) for file in snapshot(world).files() if file.deleted)
    more = next(i for i in CORPUS if bucket_of(i, 4) == bucket and i != "doc002")
    delete_rows(world, Increment({}, [more]))
    Store(str(world / "table")).delete(name)
    summary = build_index(deployment(world))
    assert (summary.mode, summary.documents) == ("full", 78)
    assert "the table no longer has version" in summary.reason
