"""Increments: only changed documents are encoded, and the table equals that of a full encode of the new corpus."""

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lsr_prod.config import Deployment
from lsr_prod.encoding import encode_corpus, table_digest
from lsr_prod.encoding.commit.committer import Committer
from lsr_prod.encoding.commit.markers import delete_markers
from lsr_prod.encoding.results import WaveResult
from lsr_prod.encoding.tables import open_table, read_part
from lsr_prod.errors import StaleWaveError
from lsr_prod.operations.maintenance import compact
from lsr_prod.storage import Store
from lsr_prod.storage.formats.table_format import content_hash
from tests.corpus.delta_tables import actions_of, delete_rows, require
from tests.encoding.opened_files import opened_files
from tests.quick import first_quick

pytestmark = pytest.mark.usefixtures("ray_local")

WORDS = [
    "fox",
    "dog",
    "river",
    "bank",
    "night",
    "train",
    "quiet",
    "green",
    "stone",
    "paper",
    "light",
    "winter",
    "summer",
    "road",
    "house",
    "sea",
]


def document(rng: random.Random, i: int) -> dict[str, str]:
    return {"_id": f"d{i}", "title": rng.choice(WORDS), "text": " ".join(rng.choices(WORDS, k=8)) + f" {i}"}


def deployment(bundle: Path, table: Path, **changes: Any) -> Deployment:
    encode = {"bundle": str(bundle), "table": str(table), "buckets": 4, "impact_step": 0.02, "probe_documents": 8}
    encode["actors"] = 1  # to start a process takes longer than to encode these documents
    source = {"paths": ["set by the test"], "id_field": "_id"}
    return Deployment.model_validate(
        {"source": {**source, **changes.pop("source", {})}, "encode": {**encode, **changes}}
    )


def rows_of(table: Path) -> dict[str, dict[str, Any]]:
    snapshot = open_table(Store(str(table)))
    assert snapshot is not None
    found: dict[str, dict[str, Any]] = {}
    for file in snapshot.files():
        for row in read_part(snapshot.store, file).to_pylist():
            assert row["doc_id"] not in found
            found[row["doc_id"]] = row | dict(file.partition)
    return found


@pytest.mark.long
def test_increment_of_a_delta_source_with_one_percent_of_changes(tmp_path: Path, tiny_bundle: Path):
    rng = random.Random(6)
    corpus = {f"d{i}": document(rng, i) for i in range(1000)}
    source = tmp_path / "source"
    documents = list(corpus.values())
    for start in range(0, 1000, 100):  # versions 0..9, one file each
        write_deltalake(source, pa.Table.from_pylist(documents[start : start + 100]), mode="append")
    first = encode_corpus(deployment(tiny_bundle, tmp_path / "table", source={"paths": [str(source)], "version": 9}))
    assert (first.documents, first.encoded) == (1000, 1000)

    chosen = rng.sample(sorted(corpus), 20)
    updated, deleted = chosen[:10], chosen[10:]
    changes = [document(rng, int(name[1:])) | {"text": f"changed {name}"} for name in updated]
    changes += [document(rng, i) for i in range(1000, 1010)]
    DeltaTable(source).merge(
        pa.Table.from_pylist(changes), "s._id = t._id", source_alias="s", target_alias="t"
    ).when_matched_update_all().when_not_matched_insert_all().execute()
    names = ", ".join(f"'{name}'" for name in deleted)
    DeltaTable(source).delete(f"_id IN ({names})")

    newest = {"paths": [str(source)]}
    increment = encode_corpus(deployment(tiny_bundle, tmp_path / "table", source=newest))
    full = encode_corpus(deployment(tiny_bundle, tmp_path / "full", source=newest))
    assert increment.base_plan == first.plan
    assert (increment.encoded, increment.deleted, increment.documents) == (20, 10, 1000)
    assert full.encoded == 1000
    assert table_digest(increment.table) == full.table_digest
    assert rows_of(tmp_path / "table") == rows_of(tmp_path / "full")

    again = encode_corpus(deployment(tiny_bundle, tmp_path / "table", source=newest))
    assert (again.encoded, again.table_version) == (0, increment.table_version)


@pytest.mark.long
def test_rows_that_a_deletion_vector_deletes_leave_the_table(tmp_path: Path, tiny_bundle: Path):
    rng, source, table = random.Random(3), tmp_path / "source", tmp_path / "table"
    for start in range(0, 40, 20):
        rows = [document(rng, i) for i in range(start, start + 20)]
        write_deltalake(source, pa.Table.from_pylist(rows), mode="append")
    require(source, "deletionVectors")
    settings = deployment(tiny_bundle, table, source={"paths": [str(source)]})
    assert encode_corpus(settings).documents == 40
    (path,) = (one["add"]["path"] for one in actions_of(source, 1) if "add" in one)
    delete_rows(source, 2, {path: [0, 7, 19]})
    increment = encode_corpus(settings)
    assert (increment.encoded, increment.deleted, increment.documents) == (0, 3, 37)
    assert sorted(rows_of(table)) == sorted(f"d{i}" for i in range(40) if i not in (20, 27, 39))


@pytest.mark.long
def test_increments_follow_added_changed_and_removed_files(tmp_path: Path, tiny_bundle: Path):
    rng = random.Random(1)
    folder = tmp_path / "corpus"
    folder.mkdir()

    def write(name: str, documents: list[dict[str, str]]) -> None:
        (folder / name).write_text("".join(json.dumps(document) + "\n" for document in documents))

    a, b, c = ([document(rng, i) for i in range(start, start + 30)] for start in (0, 30, 60))
    write("a.jsonl", a)
    write("b.jsonl", b)
    settings = deployment(tiny_bundle, tmp_path / "table", source={"paths": [str(folder)]})
    encode_corpus(settings)

    write("b.jsonl", [b[0] | {"title": "renamed", "text": b[0]["text"]}, *b[1:20]])  # one changed, ten removed
    write("c.jsonl", [*c, {**a[0], "text": "again"}])  # an id of an unchanged file
    settings = deployment(tiny_bundle, tmp_path / "table", max_bad_fraction=0.5, source={"paths": [str(folder)]})
    second = encode_corpus(settings)
    assert second.quarantined_by_reason == {"duplicate_id": 1}
    assert (second.documents, second.deleted) == (80, 10)
    assert (second.encoded, second.unchanged) == (31, 19)

    (folder / "a.jsonl").unlink()
    write("c.jsonl", c)
    third = encode_corpus(settings)
    assert (third.documents, third.deleted, third.encoded) == (50, 30, 0)
    full = encode_corpus(deployment(tiny_bundle, tmp_path / "full", source={"paths": [str(folder)]}))
    assert table_digest(third.table) == full.table_digest
    assert rows_of(tmp_path / "table") == rows_of(tmp_path / "full")


@pytest.mark.long
def test_waves_of_an_increment_share_one_read_of_the_new_files(
    tmp_path: Path, tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
):
    rng = random.Random(4)
    folder, table = tmp_path / "corpus", tmp_path / "table"
    folder.mkdir()

    def write(name: str, ids: range, filler: int = 0) -> None:
        documents = [document(rng, i) for i in ids]
        for one in documents:
            one["text"] += " filler" * filler
        (folder / name).write_text("".join(json.dumps(one) + "\n" for one in documents))

    def settings_of(table: Path, wave_megabytes: int) -> Deployment:
        encode = {"wave_megabytes": wave_megabytes, "cell_megabytes": 1, "buckets": 3}
        return deployment(tiny_bundle, table, source={"paths": [str(folder)]}, **encode)

    write("kept.jsonl", range(20))
    write("changed.jsonl", range(20, 80))
    encode_corpus(settings_of(table, 1))
    write("changed.jsonl", range(40, 100), filler=6000)
    write("new.jsonl", range(100, 120), filler=6000)
    commit, stale = Committer.commit, []

    def stale_once(self: Committer, result: WaveResult) -> bool:
        if result.wave == 1 and not stale:
            stale.extend(result.cells)
            delete_markers(self.table, self.epoch.plan, 1, {result.cells[0].cell})
            raise StaleWaveError("compacted")
        return commit(self, result)

    monkeypatch.setattr(Committer, "commit", stale_once)
    with opened_files(folder) as opened:
        increment = encode_corpus(settings_of(table, 1))
    assert increment.waves == 3
    assert [cell.cell for cell in stale] in ([1, 4], [4, 1])  # two cells of bucket 1 delete rows of its part
    assert [deletion.path for deletion in stale[0].deletions] == [deletion.path for deletion in stale[1].deletions]
    assert max(opened.values()) <= 3, opened  # pinned and read, not once per wave
    assert (increment.documents, increment.deleted) == (120 - 20, 20)
    assert increment.encoded <= 80 + stale[0].encoded  # a block that runs while its wave is dropped is not counted
    full = encode_corpus(settings_of(tmp_path / "full", 100))
    assert table_digest(str(table)) == full.table_digest
    assert rows_of(table) == rows_of(tmp_path / "full")


@pytest.mark.parametrize("killed", first_quick([False, True]))
def test_compaction_between_encoding_and_commit_repeats_the_wave(
    tmp_path: Path, tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch, killed: bool
):
    rng = random.Random(2)
    folder, table = tmp_path / "corpus", tmp_path / "table"
    folder.mkdir()
    settings = deployment(tiny_bundle, table, source={"paths": [str(folder)]})
    full, rows = None, {}
    for name, start in (("a", 0), ("b", 20)):  # one increment per file, so that buckets have several parts
        lines = [json.dumps(document(rng, i)) + "\n" for i in range(start, start + 20)]
        (folder / f"{name}.jsonl").write_text("".join(lines))
        summary = encode_corpus(settings)
        if full is None:
            full, rows = summary, rows_of(table)
    (folder / "b.jsonl").unlink()
    commit, calls = Committer.commit, []

    def compacted_before(self: Committer, result: WaveResult) -> bool:
        calls.append(result.wave)
        if len(calls) == 1:
            assert compact(Store(str(table)), 1 << 30).parts_merged > 0
            if killed:
                raise KeyboardInterrupt
        return commit(self, result)

    monkeypatch.setattr(Committer, "commit", compacted_before)
    if killed:
        with pytest.raises(KeyboardInterrupt):
            encode_corpus(settings)
    found = encode_corpus(settings)
    assert len(calls) == 2
    assert (found.documents, found.deleted, found.encoded) == (20, 20, 0)
    assert full is not None
    assert table_digest(str(table)) == full.table_digest
    assert rows_of(table) == rows


@pytest.mark.long
def test_duplicate_becomes_the_document_when_the_file_of_the_document_is_removed(tmp_path: Path, tiny_bundle: Path):
    one, two = tmp_path / "1.jsonl", tmp_path / "2.jsonl"
    one.write_text(json.dumps({"_id": "x", "text": "first fox"}) + "\n")
    two.write_text(json.dumps({"_id": "x", "text": "second fox"}) + "\n" + json.dumps({"_id": "y", "text": "a dog"}))
    settings = {"max_bad_fraction": 0.9}
    encode_corpus(deployment(tiny_bundle, tmp_path / "table", **settings, source={"paths": [str(one), str(two)]}))
    found = encode_corpus(deployment(tiny_bundle, tmp_path / "table", **settings, source={"paths": [str(two)]}))
    assert (found.documents, found.encoded, found.unchanged) == (2, 1, 1)
    assert rows_of(tmp_path / "table")["x"]["content_hash"] == content_hash("second fox")


@pytest.mark.long
def test_commit_that_lands_before_the_fence_is_not_encoded_again(
    tmp_path: Path, tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
):
    source, table = tmp_path / "corpus.jsonl", tmp_path / "table"
    settings = deployment(tiny_bundle, table, source={"paths": [str(source)]})
    for text in ("old", "new"):
        source.write_text("".join(json.dumps({"_id": f"d{i}", "text": f"{text} {i}"}) + "\n" for i in range(8)))
        if text == "old":
            encode_corpus(settings)
    real, fence, held = Committer._write, Committer.fence, []

    def stall(committer: Committer, changed: Any, adds: Any, *rest: Any) -> None:
        if adds and Path(changed.store.uri) == table:
            held.append((committer, changed, adds, *rest))
            raise RuntimeError("stalled after the check of its epoch")
        real(committer, changed, adds, *rest)

    def late(committer: Committer) -> None:
        real(*held.pop())
        fence(committer)

    with monkeypatch.context() as patch:
        patch.setattr(Committer, "_write", stall)
        with pytest.raises(RuntimeError, match="stalled"):
            encode_corpus(settings)
    monkeypatch.setattr(Committer, "fence", late)
    resumed = encode_corpus(settings)
    assert (resumed.waves, resumed.waves_skipped, resumed.documents) == (1, 1, 8)
    assert resumed.quarantined_by_reason == {}
