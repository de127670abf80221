"""Ordinals of hidden documents: found by id, written to files that are named by their content."""

import io
import random
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from lsr_prod.cluster.workers import IN_PROCESS
from lsr_prod.errors import ArtifactError, DigestMismatchError, StorageError
from lsr_prod.indexing.tombstones import (
    as_ids,
    find_documents,
    hide_documents,
    hide_everywhere,
    load_takedowns,
    load_tombstones,
    read_ids,
    save_takedowns,
    save_tombstones,
    scan_size,
)
from lsr_prod.storage import Store
from lsr_prod.storage.formats.digests import record_bytes
from lsr_prod.storage.formats.index_format import Tombstones
from lsr_prod.storage.formats.shard_format import DOCUMENTS_FILE
from lsr_prod.storage.index_shards import write_list
from tests.indexing.corpus import Doc, make_index


@pytest.fixture
def made(tmp_path):
    """Return an index folder with one shard of 100 documents, and the manifest of the shard."""
    corpus = {f"d{i:02d}": Doc({1: 1 + i}) for i in random.Random(1).sample(range(100), 100)}
    return tmp_path, make_index(tmp_path, corpus, vocabulary_size=4).shards[0]


def test_find_documents_returns_rising_ordinals_of_known_ids(made):
    index, shard = made
    ids = read_ids(index, shard)
    found = find_documents(index, shard, as_ids(["d07", "d99", "d00", "unknown", "", "d07"]))[0]
    assert found.dtype == np.uint32
    assert sorted(ids.take(pa.array(found)).to_pylist()) == ["d00", "d07", "d99"]
    assert np.array_equal(found, np.sort(found))
    assert len(find_documents(index, shard, as_ids([]))[0]) == 0
    assert len(find_documents(index, shard, as_ids(ids.to_pylist()))[0]) == 100


def test_equal_tombstones_share_one_file(made):
    index, shard = made
    one = hide_documents(index, shard, None, as_ids(["d01", "d02"]))
    assert one == hide_documents(
        index, shard, hide_documents(index, shard, None, as_ids(["d02"])), as_ids(["d01", "unknown"])
    )
    assert one == hide_documents(index, shard, one, as_ids(["d01"]))
    assert one.file.path == f"tombstones/{one.file.sha256}.npy"
    assert one.documents == 2
    assert len(list((index / "tombstones").iterdir())) == 2
    assert hide_documents(index, shard, None, as_ids(["unknown"])) is None
    assert save_tombstones(index, np.empty(0, np.uint32)) is None


def test_load_tombstones_rejects_damaged_files(made):
    index, shard = made
    good = hide_documents(index, shard, None, as_ids(["d01", "d02"]))
    assert (
        load_tombstones(index, shard, good).tolist() == find_documents(index, shard, as_ids(["d01", "d02"]))[0].tolist()
    )
    outside = save_tombstones(index, np.array([3, 100], np.uint32))
    with pytest.raises(ArtifactError, match="does not have"):
        load_tombstones(index, shard, outside)
    falling = save_tombstones(index, np.array([3, 3], np.uint32))
    with pytest.raises(ArtifactError, match="rising"):
        load_tombstones(index, shard, falling)
    path = index / good.file.path
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(DigestMismatchError):
        load_tombstones(index, shard, good)


@pytest.mark.parametrize(
    ("ordinals", "documents", "problem"),
    [
        (np.array([1, 2], np.int64), 2, "rising"),
        (np.array([[1, 2]], np.uint32), 1, "one dimension"),
        (np.array([2, 1], np.uint32), 2, "rising"),
        (np.array([1, 2], np.uint32), 3, "not a list of 3"),
        (np.array([99, 100], np.uint32), 2, "does not have"),
    ],
)
def test_list_that_does_not_fit_its_shard_is_an_error(made, ordinals, documents, problem):
    index, shard = made
    buffer = io.BytesIO()
    np.save(buffer, ordinals)
    wrong = Tombstones(write_list(index, "tombstones", ".npy", buffer.getvalue()), documents)
    with pytest.raises(ArtifactError, match=problem):
        load_tombstones(index, shard, wrong)


def test_list_without_ordinals_is_read(made):
    index, shard = made
    buffer = io.BytesIO()
    np.save(buffer, np.empty(0, np.uint32))
    assert (
        len(load_tombstones(index, shard, Tombstones(write_list(index, "tombstones", ".npy", buffer.getvalue()), 0)))
        == 0
    )


def test_documents_are_hidden_in_every_shard_that_has_them(made, tmp_path_factory):
    index, shard = made
    known = hide_documents(index, shard, None, as_ids(["d01"]))
    assert hide_everywhere(index, [shard, shard], [known, None], as_ids([]), IN_PROCESS) == (known, None)
    both = hide_documents(index, shard, known, as_ids(["d02"]))
    one = hide_documents(index, shard, None, as_ids(["d02"]))
    assert hide_everywhere(index, [shard, shard], [known, None], as_ids(["d02"]), IN_PROCESS) == (both, one)
    assert hide_documents(index, shard, both, as_ids(["d01"])) is both
    ordinals, ids = find_documents(index, shard, as_ids(["d05", "d06"]))
    assert ids.to_pylist() == read_ids(index, shard).take(pa.array(ordinals)).to_pylist()
    assert sorted(ids.to_pylist()) == ["d05", "d06"]
    assert scan_size(Store("s3://bucket/index", {}), [shard]) == 20 * scan_size(index, [shard]) == 2000


def test_ids_that_cannot_be_read_are_an_error_of_the_index_or_of_the_service(made, monkeypatch):
    index, shard = made
    with pytest.raises(ArtifactError, match="does not hold 101 documents"):
        read_ids(index, replace(shard, documents=101))
    (file,) = index.rglob(DOCUMENTS_FILE)
    whole = file.read_bytes()
    file.write_bytes(b"damaged")
    with pytest.raises(ArtifactError, match=r"docs\.arrow of shard .* is damaged"):
        read_ids(index, shard)
    file.unlink()
    with pytest.raises(ArtifactError, match=r"docs\.arrow"):
        read_ids(index, shard)
    file.write_bytes(whole)

    class Broken(io.BytesIO):
        def read(self, *_):
            raise StorageError("the connection was lost; run again")

    monkeypatch.setattr("lsr_prod.storage.index_shards.open_shard_file", lambda *_: Broken(whole))
    with pytest.raises(StorageError, match="the connection was lost; run again"):
        read_ids(index, shard)
    monkeypatch.setattr("lsr_prod.storage.index_shards.open_shard_file", lambda *_: io.BytesIO(b"no Arrow file"))
    with pytest.raises(ArtifactError, match=r"cannot be read .*; publish another version"):
        read_ids(index, shard)


def test_list_of_takedowns_is_sorted_and_another_content_is_an_error(tmp_path):
    version = make_index(tmp_path, {"d": Doc({1: 1})}, vocabulary_size=4)
    assert save_takedowns(tmp_path, []) is None
    assert load_takedowns(tmp_path, version) == []
    saved = replace(version, takedowns=save_takedowns(tmp_path, ["b", "a", "b"]))
    assert load_takedowns(tmp_path, saved) == ["a", "b"]
    for wrong in ({"a": 1}, ["a", 1], "a"):
        file = write_list(tmp_path, "takedowns", ".json", record_bytes(wrong))
        with pytest.raises(ArtifactError, match=r"takedowns/.* is not a list of ids; publish another version"):
            load_takedowns(tmp_path, replace(version, takedowns=file))
