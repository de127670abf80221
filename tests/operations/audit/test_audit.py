"""An audit finds each planted fault and names its document, and finds nothing in a healthy table."""

import gzip
import importlib
import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from lsr_prod.config import RaySettings
from lsr_prod.encoding.tables import read_part
from lsr_prod.indexing import delete_documents
from lsr_prod.indexing.publish import write_version
from lsr_prod.indexing.tombstones import save_takedowns
from lsr_prod.operations.audit import IdRange, audit, findings, open_index_scope
from lsr_prod.operations.audit.audit import deployment_scope, problems, remarks
from lsr_prod.storage import Store
from lsr_prod.storage.deletion_vector import save_vectors
from tests.encoding.made_tables import newest
from tests.encoding.tables.deletions import delete_ids
from tests.indexing.publishing import publish
from tests.operations.audit.worlds import World, documents

FILES = {
    f"{name}.jsonl": [{"_id": f"d{i}", "text": f"text of {i}", "title": f"title {i}"} for i in range(start, start + 20)]
    for name, start in (("a", 0), ("b", 20), ("c", 40))
}
IDS = [f"d{i}" for i in range(60)]


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.write_source(FILES)
    made.make_table(documents(FILES))
    made.make_index(IDS)
    return made


def first_part(world: World):
    return max(world.table.files(), key=lambda file: file.rows or 0)


def ids_of(world: World, file) -> set[str]:
    return set(read_part(world.table.store, file)["doc_id"].to_pylist())


def shown(found, name: str) -> set[str]:
    return {one.doc_id for one in found.examples[name]}


def test_healthy_table_has_no_finding(world: World):
    found = world.verify()
    assert (found.documents, found.lost, problems(found, 0.001), remarks(found, 0.001)) == (60, 0, {}, [])
    assert (found.files, found.new_files, found.index_missing, found.index_table_version) == (3, 0, 0, 1)


def test_part_that_a_commit_removed_is_missing_in_table_but_index_agrees_with_its_version(world: World):
    part = first_part(world)
    lost = ids_of(world, part)
    world.table.commit([], [part.path], app="hand", version=0, epoch=1)
    found = world.verify()
    assert problems(found, 0.001) == {"missing": len(lost)}
    assert shown(found, "missing") <= lost
    assert len(shown(found, "missing")) == min(len(lost), 10)
    assert (found.index_table_version, found.table_version, found.index_compared) == (1, 2, 1)
    assert "the index is of table version 1, the table is at 2" in remarks(found, 0.001)[0]


def test_example_of_missing_document_names_its_place(world: World):
    part = first_part(world)
    world.table.commit([], [part.path], app="hand", version=0, epoch=1)
    for one in world.verify().examples["missing"]:
        file, _, position = one.place.partition(" at ")
        assert json.loads(Path(file).read_bytes()[int(position) :].splitlines()[0])["_id"] == one.doc_id


def test_rows_under_deletion_vector_are_missing(world: World):
    table, part = world.table, first_part(world)
    doc_id = read_part(table.store, part)["doc_id"][1].as_py()
    vectors = save_vectors(table.store, {part.path: np.array([1], np.uint32)})
    table.commit([], [], app="hand", version=0, epoch=1, deletions=vectors)
    found = world.verify()
    assert problems(found, 0.001) == {"missing": 1}
    assert shown(found, "missing") == {doc_id}


def test_part_that_was_added_under_another_path_is_doubled(world: World):
    table, part = world.table, first_part(world)
    copy = part.path.replace(".parquet", "-copy.parquet")
    table.store.put_new(copy, (Path(table.store.uri) / part.path).read_bytes())
    log = Path(table.store.uri) / "_delta_log"
    add = {
        "path": copy, "partitionValues": dict(part.partition), "size": part.size, "modificationTime": 0,
        "dataChange": True, "stats": json.dumps({"numRecords": part.rows}),
    }  # fmt: skip
    (log / f"{table.version + 1:020}.json").write_text(json.dumps({"add": add}) + "\n")
    found = world.verify()
    assert problems(found, 0.001) == {"doubled": part.rows}
    assert shown(found, "doubled") <= ids_of(world, part)


@pytest.mark.parametrize("changed", [{"text": "another text"}, {"title": "another title"}])
def test_changed_source_row_is_outdated(world: World, changed: dict[str, str]):
    rows = [{**row, **changed} if row["_id"] == "d45" else row for row in FILES["c.jsonl"]]
    world.write_source({**FILES, "c.jsonl": rows})
    found = world.verify()
    assert problems(found, 0.001) == {"outdated": 1}
    assert (found.stale, shown(found, "outdated")) == (1, {"d45"})


def test_id_that_left_the_source_is_stale(world: World):
    world.write_source({**FILES, "b.jsonl": FILES["b.jsonl"][1:]})
    found = world.verify()
    assert problems(found, 0.001) == {"removed": 1}
    assert shown(found, "removed") == {"d20"}


def test_file_that_came_after_the_encode_job_is_said_to_be_new(world: World):
    world.write_source({**FILES, "d.jsonl": [{"_id": "new", "text": "a new text"}]})
    found = world.verify()
    assert (problems(found, 0.001), found.new_files, found.missing_in_new_files) == ({"missing": 1}, 1, 1)
    assert "1 of 1 missing documents are in 1 files of which the table has no row" in remarks(found, 0.001)[0]


@pytest.mark.parametrize(("rule", "other"), [("first", "last"), ("last", "first")])
def test_row_that_the_rule_does_not_choose_is_outdated(tmp_path: Path, rule: str, other: str):
    world = World(tmp_path, rule)
    again = [{"_id": "d3", "text": "again"}, {"_id": "d3", "text": "and again"}, {"_id": "d4", "text": "4"}]
    files = {
        **FILES,
        "b.jsonl": [*FILES["b.jsonl"], *again],
        "c.jsonl": [*FILES["c.jsonl"], {"_id": "d4", "text": "4"}],
    }
    world.write_source(files)
    world.make_table(documents(files, rule))
    found = world.verify()
    assert (found.documents, found.repeated, found.lost) == (60, 2, 0)
    assert found.index_missing is None

    (tmp_path / "other").mkdir()
    wrong = World(tmp_path / "other", rule)
    wrong.write_source(files)
    wrong.make_table(documents(files, other))
    found = wrong.verify()
    assert problems(found, 0.001) == {"outdated": 2}
    assert shown(found, "outdated") == {"d3", "d4"}


def test_document_that_the_model_failed_on_is_quarantined_and_not_missing(world: World):
    position = len((json.dumps(FILES["a.jsonl"][0]) + "\n").encode())
    part = next(file for file in world.table.files() if "d1" in ids_of(world, file))
    kept = [one for one in documents(FILES) if one["_id"] in ids_of(world, part) - {"d1"}]
    world.add(world.table, kept, 1, [part.path])
    assert problems(world.verify(), 0.001)["missing"] == 1
    world.quarantine("d1", "encode_failed", "a.jsonl", position + 1)
    assert problems(world.verify(), 0.001)["missing"] == 1  # another row with this id
    world.quarantine("d1", "duplicate_id", "a.jsonl", position)
    assert problems(world.verify(), 0.001)["missing"] == 1  # no reason: another row would be the document
    world.quarantine("d1", "encode_failed", "a.jsonl", position)
    found = world.verify()
    assert (problems(found, 0.001), found.quarantined) == ({}, 1)


def test_bad_rows_are_quarantined_and_not_missing(world: World):
    bad = [{"_id": "empty", "text": " "}, {"_id": "d3", "text": 7}, {"text": "no id"}, ["no object"]]
    world.write_source({**FILES, "d.jsonl": bad})  # type: ignore[dict-item]
    found = world.verify()
    assert (problems(found, 0.001), found.documents, found.quarantined, found.bad_rows) == ({}, 60, 1, 2)


def test_cut_file_counts_as_unread_with_its_bytes(world: World, tmp_path: Path):
    whole = gzip.compress("".join(json.dumps({"_id": f"z{i}", "text": "x"}) + "\n" for i in range(9)).encode(), mtime=0)
    (tmp_path / "source" / "d.jsonl.gz").write_bytes(whole[:-12])
    found = world.verify()
    assert (found.unread, found.unread_bytes) == (1, len(whole) - 12)
    assert "d.jsonl.gz from" in found.examples["unread"][0].place
    assert found.lost > 0


def test_index_without_a_document_is_found(world: World):
    world.make_index(IDS[1:])
    found = world.verify()
    assert problems(found, 0.001) == {"index_missing": 1}
    assert shown(found, "index_missing") == {"d0"}


def test_document_of_index_that_the_table_lacks_is_found(world: World):
    world.make_index([*IDS, "ghost"])
    found = world.verify()
    assert problems(found, 0.001) == {"index_stale": 1}
    assert shown(found, "index_stale") == {"ghost"}


def test_document_in_two_shards_is_doubled(world: World):
    whole, again = world.make_index(IDS), world.make_index(["d7", "d8"])
    version = replace(whole, shards=(*whole.shards, again.shards[0]), tombstones=(None,) * 3)
    count = again.shards[0].documents
    write_version(world.folder / "index", version)
    publish(world.folder / "index", version.sha)
    assert problems(world.verify(), 0.001) == {"index_doubled": count}


def test_document_that_was_taken_down_is_not_missing(world: World):
    delete_documents(world.folder / "index", ["d7", "unknown"])
    found = world.verify()
    assert (problems(found, 0.001), found.taken_down) == ({}, 1)


def test_document_that_was_taken_down_but_is_visible_is_found(world: World):
    world.make_index(IDS, takedowns=save_takedowns(Store(str(world.folder / "index")), ["d7"]))
    found = world.verify()
    assert (problems(found, 0.001), found.taken_down) == ({"exposed": 1}, 0)
    assert shown(found, "exposed") == {"d7"}


def test_empty_source_makes_every_row_stale(world: World):
    world.write_source({"a.jsonl": []})
    found = world.verify()
    assert (found.documents, problems(found, 0.001)) == (0, {"removed": 60})


def test_empty_source_with_empty_table_has_no_finding(tmp_path: Path):
    world = World(tmp_path)
    world.write_source({"a.jsonl": []})
    world.make_table([])
    found = world.verify()
    assert (found.documents, found.lost, found.clipped_share) == (0, 0, 0.0)


def test_clipped_weights_are_found(tmp_path: Path):
    world = World(tmp_path)
    world.write_source(FILES)
    world.make_table([{**one, "impact": "255"} for one in documents(FILES)])
    found = world.verify()
    assert (found.clipped_share, found.lost, problems(found, 0.001)) == (0.5, 0, {"clipped": 1})
    assert "50.00% of the weights have the largest impact" in remarks(found, 0.001)[0]


def test_index_of_deleted_table_version_is_compared_with_the_newest(world: World):
    old = next(file for file in world.table.files() if "d1" in ids_of(world, file))
    changed = [{**row, "text": "other"} if row["_id"] == "d1" else row for row in FILES["a.jsonl"]]
    files = {**FILES, "a.jsonl": changed}
    world.write_source(files)
    mine = ids_of(world, old)
    world.add(world.table, [one for one in documents(files) if one["_id"] in mine], 1, [old.path])
    assert world.verify().index_compared == 1
    (Path(world.table.store.uri) / old.path).unlink()
    found = world.verify()
    assert (found.lost, found.index_table_version, found.index_compared) == (0, 1, 2)
    assert "files of table version 1 were deleted" in remarks(found, 0.001)[1]


def test_samples_compare_every_id_once(world: World):
    table = world.table
    scope = replace(
        deployment_scope(world.deployment(), world.files(), table),
        index=open_index_scope(Store(str(world.folder / "index")), table),
    )
    samples = [audit(replace(scope, ids=IdRange(4, offset)), RaySettings()) for offset in range(4)]
    assert sum(found.documents for found in samples) == 60
    assert all(found.lost == 0 and 0 < found.documents < 60 for found in samples)


def test_several_passes_on_ray_find_what_one_pass_finds(world: World, ray_local: None, monkeypatch: pytest.MonkeyPatch):
    part = first_part(world)
    world.table.commit([], [part.path], app="hand", version=0, epoch=1)
    once = world.verify()
    module = importlib.import_module("lsr_prod.operations.audit.audit")
    for name, value in (("_SMALL", 0), ("_PARTITION_IDS", 10), ("_object_store_bytes", lambda: 2 * 49 * 60)):
        monkeypatch.setattr(module, name, value)
    again = world.verify()
    assert again.passes > 1
    kept = {name: value for name, value in asdict(once).items() if name not in ("seconds", "passes", "examples")}
    assert {name: getattr(again, name) for name in kept} == kept
    assert shown(again, "missing") <= ids_of(World(world.folder), part)


def test_example_of_a_part_with_deleted_rows_is_the_document_at_its_place(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    part = max(world.table.files(), key=lambda file: file.rows or 0)
    ids = read_part(world.table.store, part)["doc_id"].to_pylist()
    delete_ids(world.table.store, ids[:5])
    (part,) = [file for file in newest(world.table.store).files() if file.path == part.path]
    monkeypatch.setattr(findings, "_BATCH_ROWS", 4)
    found = [findings._of_part(world.table.store, part, position).doc_id for position in range(len(ids) - 5)]
    assert found == ids[5:]
