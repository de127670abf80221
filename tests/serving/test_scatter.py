"""Scattering over shard groups: the answers of the embedded Searcher, lost replicas, deadlines."""

import asyncio
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ray.exceptions import ActorDiedError, RayTaskError

from lsr_prod.errors import ArtifactError, QueryError
from lsr_prod.search import Hybrid, Searcher
from lsr_prod.serving.groups import Groups, UnavailableError
from lsr_prod.serving.scatter import ScatteringSearcher
from lsr_prod.storage import Store
from tests.indexing.corpus import Doc, make_index
from tests.indexing.remote import upload_current
from tests.search.test_parallel_searcher import CORPUS, V, corpora, options, vectors
from tests.serving.local import LocalReplicas


def scattering(index, groups, *, attempts=3, timeout_s=20, partial=True, **how):
    handles = [LocalReplicas(Path(index), group, groups, **how) for group in range(groups)]
    calls = Groups(handles, attempts=attempts, timeout_s=timeout_s, partial=partial)
    return ScatteringSearcher(Path(index), calls, encoder_threads=1)


@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.too_slow])
@given(
    corpus=corpora,
    queries=st.lists(st.tuples(vectors, st.integers(0, 45), options), min_size=1, max_size=4),
    shards=st.integers(1, 7),
    groups=st.integers(1, 4),
    deleted=st.sets(st.integers(0, 40)),
)
def test_scattered_results_equal_those_of_the_searcher(corpus, queries, shards, groups, deleted):
    gone = {doc_id for i, doc_id in enumerate(corpus) if i in deleted}
    with tempfile.TemporaryDirectory() as folder:
        make_index(Path(folder), corpus, vocabulary_size=V, deleted=gone, shards=shards)
        searcher, scattered = Searcher.open(folder), scattering(folder, groups)
        for vector, k, how in queries:
            expected, found = (each.search_vector(vector, k, **how, count=True) for each in (searcher, scattered))
            assert found.hits == expected.hits
            assert (found.matched, found.partial, found.required) == (
                expected.matched,
                expected.partial,
                expected.required,
            )
            assert scattered.search_vector(vector, k, **how).hits == expected.hits


@pytest.mark.long
def test_remote_index_is_served_and_each_group_fetches_its_shards_only(tmp_path, s3_options, monkeypatch):
    monkeypatch.setenv("LSR_PROD_CACHE", str(tmp_path / "cache"))
    home, remote = tmp_path / "home", Store(f"s3://lsr/{tmp_path.name}", s3_options)
    make_index(home, CORPUS, vocabulary_size=V, shards=3)
    upload_current(home, remote)
    handles = [LocalReplicas(remote.uri, group, 3, count=1, options=s3_options) for group in range(3)]
    groups = Groups(handles, attempts=1, timeout_s=20)
    scattered = ScatteringSearcher(remote.uri, groups, encoder_threads=1, options=s3_options)
    postings = [path.parent.name for path in (tmp_path / "cache" / "artifacts").rglob("docs.arrow")]
    assert sorted(postings) == sorted(shard.sha for shard in scattered.version.shards)
    query = {1: 1.0, 2: 0.5}
    assert scattered.search_vector(query, 20).hits == Searcher.open(home).search_vector(query, 20).hits
    make_index(home, {**CORPUS, "new": Doc({1: 255})}, vocabulary_size=V, shards=3)
    upload_current(home, remote)
    assert scattered.refresh()
    assert scattered.search_vector(query, 20).hits == Searcher.open(home).search_vector(query, 20).hits


@pytest.fixture
def index(tmp_path):
    make_index(tmp_path / "index", CORPUS, vocabulary_size=V, shards=3)
    return tmp_path / "index"


def died(number, method):
    if number % 2 == 0:
        raise ActorDiedError


def test_a_call_whose_replica_dies_is_sent_to_another(index):
    expected = Searcher.open(index).search_vector({0: 1.0, 1: 2.0}, 5, fields=["text"], rescore=20)
    found = scattering(index, 3, before=died).search_vector({0: 1.0, 1: 2.0}, 5, fields=["text"], rescore=20)
    assert found.hits == expected.hits


def test_a_call_is_not_sent_forever(index):
    def always(number, method):
        raise ActorDiedError

    searcher = scattering(index, 1, before=always, attempts=3)
    with pytest.raises(UnavailableError, match="3 replicas were lost"):
        searcher.search_vector({0: 1.0})
    assert searcher._groups.handles[0].calls == 3


def test_an_error_of_a_replica_is_raised_and_not_retried(index):
    def damaged(number, method):
        raise RayTaskError("match", "traceback", ArtifactError("a shard is damaged"))

    searcher = scattering(index, 1, before=damaged)
    with pytest.raises(ArtifactError, match=r"^a shard is damaged$"):
        searcher.search_vector({0: 1.0})
    assert searcher._groups.handles[0].calls == 1


def test_a_foreign_error_is_raised_unchanged(index):
    def broken(number, method):
        raise RayTaskError("match", "traceback", ZeroDivisionError())

    with pytest.raises(RayTaskError):
        scattering(index, 1, before=broken).search_vector({0: 1.0})


def test_a_hanging_replica_gives_a_partial_result_at_the_deadline(index):
    searcher = scattering(index, 2)
    searcher.search_vector({0: 1.0})
    searcher._groups.handles[0].before = lambda *_: asyncio.sleep(5)
    start = time.monotonic()
    result = searcher.search_vector({0: 1.0}, deadline_ms=200)
    assert time.monotonic() - start < 2
    assert result.partial
    assert result.hits
    assert {hit.doc_id for hit in result.hits} <= set(CORPUS)


def test_a_hanging_replica_is_unavailable_without_a_deadline(index):
    searcher = scattering(index, 1, before=lambda *_: asyncio.sleep(5), timeout_s=0.2)
    with pytest.raises(UnavailableError, match="did not answer within"):
        searcher.search_vector({0: 1.0})


def only(names):
    """Raise in the place of calls to the methods."""

    def before(number, method):
        if method in names:
            raise ActorDiedError

    return before


@pytest.mark.parametrize("dead", [("match", "state"), ("fields", "state"), ("rescore", "state")])
def test_a_dead_group_is_named_and_the_others_answer(index, dead):
    searcher = scattering(index, 3, attempts=2)
    query, options = {0: 1.0, 1: 2.0}, {"fields": ["text"], "rescore": 300, "count": True}
    expected = [hit for hit in searcher.search_vector(query, 300, **options).hits if shard_of(searcher, hit) != 1]
    searcher._groups.handles[1].before = only(dead)
    found = searcher.search_vector(query, 300, **options)
    assert (found.partial, found.missing_groups, found.matched_exact) == (True, (1,), False)
    assert list(found.hits) == expected


@pytest.mark.parametrize("hybrid", [None, Hybrid(words=2.0)])
def test_a_scattered_explanation_equals_that_of_the_searcher(tmp_path, hybrid):
    make_index(tmp_path, CORPUS, vocabulary_size=V, shards=3, bm25=True)
    searcher, scattered = Searcher.open(tmp_path), scattering(tmp_path, 2)
    how = {} if hybrid is None else {"hybrid": hybrid, "text": "text 3"}
    for doc_id in ("d1", "d2", "d3", "d13"):
        assert scattered.explain({0: 1.0, 1: 2.0, 2: 1.0}, doc_id, **how) == searcher.explain(
            {0: 1.0, 1: 2.0, 2: 1.0}, doc_id, **how
        )
    for call in (searcher.explain, scattered.explain):
        with pytest.raises(QueryError, match="there is no document 'absent' in this version"):
            call({0: 1.0}, "absent")
    assert scattered.bm25("text 3", 7, fields=["text"]).hits == searcher.bm25("text 3", 7, fields=["text"]).hits
    scattered._groups.handles[1].before = only(("explain", "state"))
    with pytest.raises(UnavailableError, match=r"\[1\] do not answer"):
        scattered.explain({0: 1.0}, "d1")


def test_a_scattered_bm25_needs_postings_of_words(index):
    with pytest.raises(QueryError, match=r"build it with index\.bm25: true"):
        scattering(index, 2).bm25("text 3")


def shard_of(searcher, hit):
    embedded = Searcher.open(searcher.snapshot.index)
    return embedded.snapshot.find(hit.doc_id)[0]


def test_a_dead_group_fails_the_query_if_results_must_be_complete(index):
    searcher = scattering(index, 2, attempts=2, partial=False)
    searcher._groups.handles[1].before = only(("match", "state"))
    for deadline_ms in (None, 5_000):
        with pytest.raises(UnavailableError, match=r"replicas were lost|shard group 1 is down"):
            searcher.search_vector({0: 1.0}, deadline_ms=deadline_ms)


def test_a_slow_group_is_named_at_the_deadline_or_fails_the_query(index):
    for partial in (True, False):
        searcher = scattering(index, 2, partial=partial)
        searcher.search_vector({0: 1.0})
        searcher._groups.handles[1].before = lambda *_: asyncio.sleep(5)
        if partial:
            found = searcher.search_vector({0: 1.0}, deadline_ms=100)
            assert (found.partial, found.missing_groups) == (True, (1,))
        else:
            with pytest.raises(UnavailableError, match="group 1 did not answer before the deadline"):
                searcher.search_vector({0: 1.0}, deadline_ms=100)


@pytest.mark.parametrize("deadline_ms", [None, 60_000])
def test_queries_do_not_wait_for_a_group_that_is_down_until_it_answers(index, deadline_ms):
    searcher = scattering(index, 2, timeout_s=0.3)
    searcher._groups.handles[1].before = lambda *_: asyncio.sleep(5)
    assert searcher.search_vector({0: 1.0}, deadline_ms=deadline_ms).missing_groups == (1,)
    calls = searcher._groups.handles[1].calls
    for _ in range(5):
        assert searcher.search_vector({0: 1.0}).missing_groups == (1,)
    assert searcher._groups.handles[1].calls == calls
    searcher._groups.handles[1].before = lambda *_: None
    end = time.monotonic() + 10
    while (found := searcher.search_vector({0: 1.0})).missing_groups:
        assert time.monotonic() < end
        time.sleep(0.02)
    assert not found.partial


@pytest.mark.parametrize("dead", [True, False])
def test_a_group_that_misses_deadlines_is_down_if_no_replica_answers(index, dead):
    searcher = scattering(index, 2, timeout_s=0.3)
    groups, handle = searcher._groups, searcher._groups.handles[1]
    handle.before = lambda _, method: asyncio.sleep(5) if dead or method != "state" else None
    for _ in range(2):
        assert searcher.search_vector({0: 1.0}, deadline_ms=50).missing_groups == (1,)
    end = time.monotonic() + 10
    while groups._doubted:
        assert time.monotonic() < end
        time.sleep(0.01)
    calls = handle.calls
    assert searcher.search_vector({0: 1.0}, deadline_ms=50).missing_groups == (1,)
    assert handle.calls == calls + (not dead)


def test_each_query_reads_its_pinned_version(index):
    searcher = scattering(index, 2)
    before, expected = searcher.version.sha, Searcher.open(index)
    make_index(index, {"new": Doc({0: 9})}, vocabulary_size=V, shards=1)
    for handle in searcher._groups.handles:
        for replica in handle.replicas:
            assert replica.follow()
    result = searcher.search_vector({0: 1.0}, fields=["text"])
    assert (result.version, result.hits) == (before, expected.search_vector({0: 1.0}, fields=["text"]).hits)
    assert searcher.refresh()
    assert not searcher.refresh()
    result = searcher.search_vector({0: 1.0})
    assert result.version != before
    assert [hit.doc_id for hit in result.hits] == ["new"]
