"""Searching a remote index: download into the node cache, refresh, and eviction."""

import gc

import pytest

from lsr_prod.errors import QueryError
from lsr_prod.search import Searcher
from lsr_prod.storage import Store
from lsr_prod.storage.index_upload import upload_current
from tests.indexing.corpus import Doc, make_index

CORPUS = {f"d{i}": Doc({i % 5: 5, 5: 1 + i}) for i in range(30)}


def test_remote_index_is_cached_refreshed_and_evicted(tmp_path, s3_options):
    home, remote = tmp_path / "home", Store("s3://lsr/located", s3_options)
    make_index(home, CORPUS, vocabulary_size=6, shards=2)
    upload_current(home, remote)
    searcher = Searcher.open(remote.uri, cache=tmp_path / "cache", storage_options=s3_options)
    local = Searcher.open(home)
    assert searcher.search_vector({5: 1.0, 2: 2.0}).hits == local.search_vector({5: 1.0, 2: 2.0}).hits
    assert not searcher.refresh()
    make_index(home, {**CORPUS, "new": Doc({5: 255})}, vocabulary_size=6, shards=2)
    upload_current(home, remote)
    before = searcher.snapshot
    assert searcher.refresh()
    assert searcher.search_vector({5: 1.0}).hits[0].doc_id == "new"
    assert searcher.match_tantivy([5], 1) == {*CORPUS, "new"}
    assert used(searcher) == 2
    del before
    gc.collect()
    assert used(searcher) == 1  # the previous version was released with its last reader


def used(searcher: Searcher) -> int:
    return sum(map(len, searcher._location.cache._marks.values()))


def test_remote_index_without_cache_is_rejected():
    with pytest.raises(QueryError, match="set cache"):
        Searcher.open("s3://bucket/index")
