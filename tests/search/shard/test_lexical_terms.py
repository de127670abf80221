"""Word dictionary of a shard: lookup, impacts, and detection of damage."""

import json
from dataclasses import replace

import numpy as np
import pytest

from lsr_prod.errors import ArtifactError, DigestMismatchError
from lsr_prod.search import Hybrid, Searcher
from lsr_prod.search.shard.open_shard import OpenShard
from lsr_prod.storage import Store
from lsr_prod.storage.formats.digests import canonical_json
from lsr_prod.storage.formats.index_format import ShardManifest
from tests.indexing.corpus import Doc, make_index
from tests.indexing.publishing import publish

NAMES = ["a", "aa", "b", "naïv", "z\U0001f600", "ﬀ", "\U00010330"]
CORPUS = {f"d{i}": Doc({1: 7}, f"{name} fill") for i, name in enumerate(NAMES)}


@pytest.fixture
def made(tmp_path):
    return tmp_path, make_index(tmp_path, CORPUS, vocabulary_size=3, bm25=True)


def opened(made):
    folder, version = made
    return OpenShard(folder / "shards" / version.shards[0].sha, version.shards[0], lazy=True)


def test_lookup_finds_every_indexed_word_and_no_other(made):
    words = opened(made).words
    held = [name.encode() for name in sorted(["fill", "a", "aa", "b", "naïv", "z", "ﬀ", "\U00010330"])]
    assert held == sorted(held)
    ids = words.ids([name.decode() for name in held])
    assert ids.dtype == np.int32
    assert ids.tolist() == list(range(3, 3 + len(held)))
    assert words.ids(["", "ab", "zz", "\U0010ffff", "A"]).tolist() == [-1] * 5
    assert words.ids([]).tolist() == []


def test_cached_word_ids_equal_looked_up_ids(made, monkeypatch):
    monkeypatch.setattr("lsr_prod.search.shard.open_shard._CACHED", 2)
    words, names = opened(made).words, ["a", "none", "fill", "aa", "a", "none", "b", "b"]
    expected = {name: opened(made).words.ids([name]).tolist()[0] for name in names}
    for _ in range(3):
        assert words.ids(names).tolist() == [expected[name] for name in names]


@pytest.mark.long
def test_impacts_of_words_are_found_in_every_window(tmp_path):
    held = {0: 3, 1: 1, 300: 2, 899: 5, 16_383: 4, 16_384: 6, 40_000: 7}
    corpus = {f"d{i:05d}": Doc({0: 1}, "fox " * held.get(i, 0) + "dog") for i in range(40_001)}
    version = make_index(tmp_path, corpus, vocabulary_size=1, bm25=True)
    shard = opened((tmp_path, version))
    fox, dog = shard.words.ids(["fox", "dog"]).tolist()
    impacts = shard.postings.impacts(fox, np.arange(40_001))
    found = {int(ordinal): int(impacts[ordinal]) for ordinal in np.flatnonzero(impacts)}
    assert found.keys() == held.keys()
    assert (shard.postings.impacts(dog, np.arange(40_001)) > 0).all()  # its runs are bitmaps
    backwards = np.array([40_000, 5, 300, 300, 0])
    assert shard.postings.impacts(fox, backwards).tolist() == [found.get(int(at), 0) for at in backwards]
    for outside in (-1, 40_001, 1 << 40):
        with pytest.raises(ArtifactError, match="damaged"):
            shard.postings.impacts(fox, np.array([3, outside]))
    scores = {hit.doc_id: hit.score for hit in Searcher.open(tmp_path).bm25("fox").hits}
    heavy = sorted(found, key=lambda ordinal: -found[ordinal])
    assert [f"d{ordinal:05d}" for ordinal in heavy] == list(scores)


def test_word_lookup_detects_one_flipped_bit(made):
    folder, version = made
    for name in ("word_offsets", "word_bytes"):
        path = folder / "shards" / version.shards[0].sha / "impacts" / f"{name}.npy"
        data = path.read_bytes()
        path.write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
        with pytest.raises(DigestMismatchError, match=name):
            Searcher.open(folder).bm25("fill")
        path.write_bytes(data)
    assert len(Searcher.open(folder).bm25("fill").hits) == len(CORPUS)


def test_invalid_word_offsets_never_read_outside_bytes(made):
    folder, version = made
    path = folder / "shards" / version.shards[0].sha / "impacts" / "word_offsets.npy"
    offsets = np.load(path)
    for hostile in (np.full_like(offsets, 1 << 62), np.full_like(offsets, -(1 << 62)), offsets[::-1].copy()):
        hostile[-1] = offsets[-1]
        np.save(path, hostile)
        Searcher.open(folder, verify=False).bm25("fill")
    offsets[-1] += 1
    np.save(path, offsets)
    with pytest.raises(ArtifactError, match="contradict"):
        Searcher.open(folder, verify=False)


@pytest.mark.parametrize("lost", [["word_bytes"], ["word_bytes", "word_offsets"]])
def test_manifest_without_word_dictionary_is_rejected(made, lost):
    folder, version = made
    shard = version.shards[0]
    paths = {f"impacts/{name}.npy" for name in lost}
    kept = tuple(file for file in shard.files if file.path not in paths)
    manifest = ShardManifest.from_json(json.loads(json.dumps(replace(shard, files=kept).to_json())))
    broken = replace(version, shards=(manifest,))
    Store(str(folder)).put_new(f"versions/{broken.sha}.json", canonical_json(broken.to_json()))
    publish(folder, broken.sha)
    with pytest.raises(ArtifactError, match=r"words|vocabulary"):
        Searcher.open(folder, verify=False).search_vector({1: 1.0}, text="fill", hybrid=Hybrid())
