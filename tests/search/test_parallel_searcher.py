"""ParallelSearcher: the same results as Searcher, computed by several threads."""

import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lsr_prod.errors import ArtifactError, ConfigError, PublicationError, QueryError
from lsr_prod.search import Searcher
from lsr_prod.search.index_snapshot import Snapshot
from lsr_prod.search.parallel_searcher import ParallelSearcher
from tests.indexing.corpus import Doc, make_index

V = 12
documents = st.dictionaries(st.integers(0, V - 1), st.integers(1, 255), max_size=6).map(Doc)
corpora = st.dictionaries(st.text(alphabet="abcé0", min_size=1, max_size=4), documents, max_size=40)
vectors = st.dictionaries(st.integers(0, V - 1), st.floats(0.015625, 20, width=32), max_size=V)
options = st.fixed_dictionaries(
    {},
    optional={
        "overlap_threshold": st.sampled_from([0.0, 0.25, 0.5, 1.0]),
        "min_terms": st.integers(1, 4),
        "qk": st.integers(1, V),
        "min_score": st.floats(0, 400),
        "rescore": st.integers(45, 60),
        "deduplicate": st.just("text"),
        "deadline_ms": st.sampled_from([0, 1e6]),
        "fields": st.just(["text"]),
    },
)
CORPUS = {f"d{i}": Doc({i % V: 1 + i % 255, (i * 7 + 1) % V: 3}, f"text {i % 5}") for i in range(300)}


def answer(result):
    found = result.hits, result.matched, result.matched_exact
    return *found, result.required, result.query, result.version, result.partial


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(
    corpus=corpora,
    queries=st.lists(st.tuples(vectors, st.integers(0, 45), options), min_size=1, max_size=6),
    shards=st.integers(1, 7),
    threads=st.integers(1, 4),
    deleted=st.sets(st.integers(0, 40)),
)
def test_results_equal_those_of_searcher(corpus, queries, shards, threads, deleted):
    gone = {doc_id for i, doc_id in enumerate(corpus) if i in deleted}
    with tempfile.TemporaryDirectory() as folder:
        make_index(Path(folder), corpus, vocabulary_size=V, deleted=gone, shards=shards)
        searcher = Searcher.open(folder)
        with ParallelSearcher.open(folder, threads=threads) as sharded:
            for vector, k, how in queries:
                expected, found = (each.search_vector(vector, k, **how) for each in (searcher, sharded))
                assert answer(found) == answer(expected)
                expected, found = (each.search_vector(vector, k, **how, count=True) for each in (searcher, sharded))
                assert answer(found) == answer(expected)
                assert sharded.count(vector) == searcher.count(vector)


@pytest.fixture
def index(tmp_path):
    make_index(tmp_path / "index", CORPUS, vocabulary_size=V, shards=5)
    return tmp_path / "index"


def test_calling_thread_and_helper_threads_match_shards_concurrently(index, monkeypatch):
    names, together, original = set(), threading.Barrier(3, timeout=10), Snapshot.match_one
    left = threading.Semaphore(3)

    def match_one(self, number, query, floor):
        if left.acquire(blocking=False):
            together.wait()  # three shards at once, or the barrier breaks
        names.add(threading.current_thread().name)
        return original(self, number, query, floor)

    with ParallelSearcher.open(index, threads=3) as sharded:
        monkeypatch.setattr(Snapshot, "match_one", match_one)
        assert len(sharded.search_vector({0: 1.0}).hits) == 10
    assert threading.current_thread().name in names
    assert len(names) == 3


def test_concurrent_callers_share_pool_and_get_correct_results(index):
    searcher = Searcher.open(index)
    queries = [({i % V: 1.0, (i + 3) % V: 0.5}, 1 + i % 9) for i in range(200)]
    expected = [searcher.search_vector(*query).hits for query in queries]
    with ParallelSearcher.open(index, threads=2) as sharded, ThreadPoolExecutor(4) as callers:
        assert list(callers.map(lambda query: sharded.search_vector(*query).hits, queries)) == expected


def test_finished_shards_raise_floor(index, monkeypatch):
    floors, original = [], Snapshot.match_one

    def match_one(self, number, query, floor):
        floors.append(floor)
        return original(self, number, query, floor)

    monkeypatch.setattr(Snapshot, "match_one", match_one)
    with ParallelSearcher.open(index, threads=1) as sharded:
        best = sharded.search_vector({0: 1.0, 1: 1.0}, 1).hits[0]
    assert floors[0] == 0
    assert floors == sorted(floors)
    assert 0 < floors[-1] <= best.score


def test_hits_of_a_share_do_not_depend_on_which_shard_finishes_first(tmp_path, monkeypatch):
    rng = np.random.default_rng(3)
    corpus = {
        f"d{i}": Doc({t: int(x) for t, x in enumerate(rng.integers(1, 256, V)) if t != i % V}) for i in range(500)
    }
    make_index(tmp_path, corpus, vocabulary_size=V, shards=5)
    original, slow = Snapshot.match_one, []

    def match_one(self, number, query, floor):
        if number == slow[-1]:
            time.sleep(0.01)
        return original(self, number, query, floor)

    vector = {term: 1.0 + term / V for term in range(V)}
    found = set()
    with ParallelSearcher.open(tmp_path, threads=3) as sharded:
        monkeypatch.setattr(Snapshot, "match_one", match_one)
        for last in range(5):
            slow.append(last)
            for share in (0.2, 0.5, 0.8):
                result = sharded.search_vector(vector, 3, scan_share=share)
                found.add((share, tuple(hit.doc_id for hit in result.hits), result.matched))
    assert len(found) == 3


def test_error_in_helper_thread_reaches_caller(index, monkeypatch):
    original, caller, matched = Snapshot.match_one, threading.current_thread(), []

    def match_one(self, number, query, floor):
        if threading.current_thread() is not caller:
            raise ArtifactError("a shard is damaged")
        matched.append(number)
        time.sleep(0.2)
        return original(self, number, query, floor)

    with ParallelSearcher.open(index, threads=2) as sharded:
        with monkeypatch.context() as patch:
            patch.setattr(Snapshot, "match_one", match_one)
            with pytest.raises(ArtifactError, match="a shard is damaged"):
                sharded.search_vector({0: 1.0})
        assert len(matched) < 5
        assert sharded.search_vector({0: 1.0}).hits == Searcher.open(index).search_vector({0: 1.0}).hits


def test_deadline_between_shards_returns_partial_result(index, monkeypatch):
    original = Snapshot.match_one

    def match_one(self, number, query, floor):
        found = original(self, number, query, floor)
        time.sleep(0.15)
        return found

    with ParallelSearcher.open(index, threads=2) as sharded:
        sharded.search_vector({0: 1.0})
        monkeypatch.setattr(Snapshot, "match_one", match_one)
        start = time.monotonic()
        result = sharded.search_vector({0: 1.0}, deadline_ms=100)
    assert result.partial
    assert not result.matched_exact
    assert result.hits
    assert time.monotonic() - start < 0.6  # five shards take 0.75 s sequentially and 0.45 s in parallel


def test_parallel_searcher_follows_publications(tmp_path):
    make_index(tmp_path, CORPUS, vocabulary_size=V, shards=3)
    with ParallelSearcher.open(tmp_path) as sharded:
        before = sharded.version.sha
        make_index(tmp_path, {"new": Doc({0: 9})}, vocabulary_size=V, shards=2)
        assert sharded.refresh()
        result = sharded.search_vector({0: 1.0})
    assert [hit.doc_id for hit in result.hits] == ["new"]
    assert result.version != before


def test_closed_searcher_rejects_queries(index):
    sharded = ParallelSearcher.open(index, threads=2)
    sharded.close()
    sharded.close()
    with pytest.raises(QueryError, match="closed"):
        sharded.search_vector({0: 1.0})


@pytest.mark.parametrize("threads", [0, -1, True, 1.5, "2"])
def test_invalid_number_of_threads_is_rejected(index, threads):
    with pytest.raises(ConfigError, match="threads"):
        ParallelSearcher.open(index, threads=threads)


def test_empty_folder_raises_publication_error(tmp_path):
    with pytest.raises(PublicationError):
        ParallelSearcher.open(tmp_path)
