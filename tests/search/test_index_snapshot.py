"""Snapshots: shards shared with the previous snapshot, and rejected versions."""

import gc
import json
import weakref
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lsr_prod.errors import ArtifactError, DigestMismatchError, LineageError, QueryError
from lsr_prod.search import Searcher
from lsr_prod.search.index_snapshot import Snapshot
from lsr_prod.search.query.filters import field
from lsr_prod.storage import Store
from lsr_prod.storage.formats.digests import canonical_json
from lsr_prod.storage.formats.index_format import IndexVersion
from lsr_prod.storage.publications import current_publication
from tests.indexing.corpus import Doc, bury, make_index
from tests.indexing.publishing import publish

CORPUS = {f"d{i:02d}": Doc({i % 7: 1 + i, 7: 3}, f"text {i}") for i in range(40)}


def publish_version(index: Path, version: IndexVersion) -> None:
    Store(str(index)).put_new(f"versions/{version.sha}.json", canonical_json(version.to_json()))
    publish(index, version.sha)


def test_refresh_opens_only_new_shards(tmp_path):
    version = make_index(tmp_path, CORPUS, vocabulary_size=8, shards=3)
    searcher = Searcher.open(tmp_path)
    before = searcher.snapshot
    other = make_index(tmp_path, {"x": Doc({1: 200})}, vocabulary_size=8)
    deleted = {"d01", "d08"}
    tombstones = (*(bury(tmp_path, shard, deleted) for shard in version.shards), None)
    publish_version(tmp_path, replace(version, shards=version.shards + other.shards, tombstones=tombstones))
    assert searcher.refresh()
    after = searcher.snapshot
    for number in range(3):
        assert after.readers[number].shard is before.readers[number].shard
    assert [hit.doc_id for hit in searcher.search_vector({1: 1.0}, 3).hits] == ["x", "d36", "d29"]
    assert searcher.documents == 39
    assert before.find("d01")  # a query that started on the previous version still finds it
    with pytest.raises(QueryError, match="no document 'd01'"):
        after.find("d01")


def test_previous_version_is_released_with_its_last_reader(tmp_path):
    make_index(tmp_path, CORPUS, vocabulary_size=8)
    searcher = Searcher.open(tmp_path)
    searcher.search_vector({1: 1.0}, filter=field("doc_id") == "d01")
    held, gone = searcher.snapshot, weakref.ref(searcher.snapshot)
    make_index(tmp_path, {"x": Doc({1: 200})}, vocabulary_size=8)
    assert searcher.refresh()
    gc.collect()
    assert gone() is held
    del held
    gc.collect()
    assert gone() is None


def test_failed_refresh_keeps_previous_version(tmp_path):
    make_index(tmp_path, CORPUS, vocabulary_size=8)
    searcher = Searcher.open(tmp_path)
    sha = make_index(tmp_path, {"x": Doc({1: 200})}, vocabulary_size=8).shards[0].sha
    (tmp_path / "shards" / sha / "docs.arrow").unlink()
    for _ in range(2):
        with pytest.raises(ArtifactError, match=r"docs\.arrow"):
            searcher.refresh()
    assert searcher.search_vector({1: 1.0}).matched == 6


def test_snapshot_opens_only_requested_shards(tmp_path):
    make_index(tmp_path, CORPUS, vocabulary_size=8, shards=3)
    snapshot = Snapshot(tmp_path, current_publication(tmp_path), shards=[2])
    assert list(snapshot.readers) == [2]


def test_shard_with_different_vocabulary_is_rejected(tmp_path):
    version = make_index(tmp_path, CORPUS, vocabulary_size=8)
    other = make_index(tmp_path, CORPUS, vocabulary_size=9)
    publish_version(tmp_path, replace(version, shards=other.shards))
    with pytest.raises(LineageError, match="another vocabulary"):
        Searcher.open(tmp_path)
    publish_version(tmp_path, replace(version, vocabulary_sha256="0" * 64))
    with pytest.raises(LineageError, match="does not have the vocabulary of the index"):
        Searcher.open(tmp_path)


def test_damaged_or_missing_tombstones_are_rejected(tmp_path):
    version = make_index(tmp_path, CORPUS, vocabulary_size=8, deleted=["d01", "d30"])
    assert version.tombstones[0] is not None
    path = tmp_path / version.tombstones[0].file.path
    np.save(path, np.array([1, 4_000], np.uint32))
    with pytest.raises(DigestMismatchError, match="tombstones"):
        Searcher.open(tmp_path, verify=False)
    path.unlink()
    with pytest.raises(ArtifactError, match=r"tombstones.*missing"):
        Searcher.open(tmp_path)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"[]", b"{}", b"null", b'{"number": 1}', b'{"version": 3'])
def test_unreadable_publication_raises_artifact_error(tmp_path, content):
    make_index(tmp_path, CORPUS, vocabulary_size=8)
    (tmp_path / "publications" / "000001.json").write_bytes(content)
    with pytest.raises(ArtifactError, match=r"000001\.json"):
        Searcher.open(tmp_path)


def test_changed_or_renumbered_publication_is_rejected(tmp_path):
    make_index(tmp_path, CORPUS, vocabulary_size=8)
    path = tmp_path / "publications" / "000001.json"
    value = json.loads(path.read_bytes())
    path.write_text(json.dumps({**value, "note": "changed"}))
    with pytest.raises(DigestMismatchError, match="publication"):
        Searcher.open(tmp_path)
    path.write_text(json.dumps(value))
    path.rename(path.with_name("000007.json"))
    with pytest.raises(ArtifactError, match="its number is 1"):
        Searcher.open(tmp_path)
