"""Ordinals of hidden documents: found by id, written to files that are named by their content."""

import random

import numpy as np
import pyarrow as pa
import pytest

from lsr_prod.errors import ArtifactError, DigestMismatchError
from lsr_prod.indexing.tombstones import (
    as_ids,
    find_ordinals,
    hide_documents,
    load_tombstones,
    read_ids,
    save_tombstones,
)
from tests.indexing.corpus import Doc, make_index


@pytest.fixture
def made(tmp_path):
    """Return an index folder with one shard of 100 documents, and the manifest of the shard."""
    corpus = {f"d{i:02d}": Doc({1: 1 + i}) for i in random.Random(1).sample(range(100), 100)}
    return tmp_path, make_index(tmp_path, corpus, vocabulary_size=4).shards[0]


def test_find_ordinals_returns_rising_ordinals_of_known_ids(made):
    index, shard = made
    ids = read_ids(index, shard)
    found = find_ordinals(index, shard, as_ids(["d07", "d99", "d00", "unknown", "", "d07"]))
    assert found.dtype == np.uint32
    assert sorted(ids.take(pa.array(found)).to_pylist()) == ["d00", "d07", "d99"]
    assert np.array_equal(found, np.sort(found))
    assert len(find_ordinals(index, shard, as_ids([]))) == 0
    assert len(find_ordinals(index, shard, as_ids(ids.to_pylist()))) == 100


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
    assert load_tombstones(index, shard, good).tolist() == find_ordinals(index, shard, as_ids(["d01", "d02"])).tolist()
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
