"""A search with ``scan_share`` below 1 may miss hits, but what it returns is exact."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lsr_prod.errors import QueryError
from lsr_prod.search import Hybrid, ParallelSearcher, Searcher, SearchResult, field
from lsr_prod.search.query.search_request import Request
from lsr_prod.search.shard.postings import ShardQuery
from tests.indexing.corpus import Doc, make_index
from tests.search.test_array_search import batch

V, N = 200, 3000
SHARES = (0.2, 0.4, 0.6, 0.8, 0.95)


def corpus() -> dict[str, Doc]:
    rng = np.random.default_rng(3)
    popularity = 1 / (1 + np.arange(V)) ** 0.7
    popularity /= popularity.sum()
    found = {}
    for i in range(N):
        terms = rng.choice(V, 20, replace=False, p=popularity)
        impacts = rng.gamma(3.0, 20.0, 20).clip(1, 255).astype(int)
        found[f"d{i:04}"] = Doc(
            dict(zip(terms.tolist(), impacts.tolist(), strict=True)), f"word{i % 9} lock", {"year": str(i % 50)}
        )
    return found


def vectors(count: int) -> list[dict[int, float]]:
    rng = np.random.default_rng(4)
    return [
        dict(zip(rng.choice(V, 12, replace=False).tolist(), rng.exponential(size=12).tolist(), strict=True))
        for _ in range(count)
    ]


DOCUMENTS, VECTORS = corpus(), vectors(60)


@pytest.fixture(scope="module", params=[1, 4])
def index(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an index of some shards, with deleted documents."""
    folder = tmp_path_factory.mktemp("share") / "index"
    gone = set(list(DOCUMENTS)[::11])
    types: Any = {"year": "int64"}
    make_index(folder, DOCUMENTS, vocabulary_size=V, shards=request.param, deleted=gone, attributes=types, bm25=True)
    return folder


@pytest.fixture(scope="module", params=[Searcher, ParallelSearcher])
def searcher(request: pytest.FixtureRequest, index: Path) -> Iterator[Searcher]:
    yield request.param.open(index)
    _exact.cache_clear()


def everything(searcher: Searcher, vector: dict[int, float], **options: Any) -> dict[str, tuple[float, int]]:
    """Return score and overlap of all exact hits; every share is compared with the same search."""
    return _exact(searcher, tuple(vector.items()), tuple(options.items()))


@cache
def _exact(searcher: Searcher, terms: tuple[Any, ...], options: tuple[Any, ...]) -> dict[str, tuple[float, int]]:
    found = searcher.search_vector(dict(terms), N, **dict(options))
    return {hit.doc_id: (hit.score, hit.overlap) for hit in found.hits}


def check_hits(found: SearchResult, exact: dict[str, tuple[float, int]]) -> None:
    """Require hits that are exact and in order."""
    assert all(exact[hit.doc_id] == (hit.score, hit.overlap) for hit in found.hits)
    order = [(-hit.score, hit.doc_id) for hit in found.hits]
    assert order == sorted(order)
    assert len(set(order)) == len(order)
    assert not found.matched_exact


OPTIONS: list[dict[str, Any]] = [
    {},
    {"filter": field("year") < 25},
    {"filter": field("year") == 7},
    {"min_score": 2.0},
    {"qk": 6},
    {"deduplicate": "year"},
    {"rescore": 100},
    {"fields": ["year"]},
    {"offset": 5},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: " ".join(options) or "plain")
@pytest.mark.parametrize("share", SHARES)
def test_hits_below_one_have_exact_scores(searcher: Searcher, options: dict[str, Any], share: float) -> None:
    of_all = {
        name: value for name, value in options.items() if name not in ("offset", "deduplicate", "rescore", "fields")
    }
    for vector in VECTORS[:12]:
        exact = everything(searcher, vector, **of_all)
        found = searcher.search_vector(vector, 10, scan_share=share, **options)
        check_hits(found, exact)
        assert found.matched <= searcher.search_vector(vector, 10, **options).matched


@pytest.mark.parametrize("options", OPTIONS[:5], ids=lambda options: " ".join(options) or "plain")
def test_arrays_below_one_equal_single_vectors(searcher: Searcher, options: dict[str, Any]) -> None:
    if isinstance(searcher, ParallelSearcher):  # search_arrays is the same
        return
    arrays = searcher.search_arrays(*batch(VECTORS), 10, scan_share=0.5, **options)
    for vector, names, scores in zip(VECTORS, arrays.doc_ids(), arrays.scores.tolist(), strict=True):
        exact = everything(searcher, vector, **options)
        assert [exact[name][0] for name in names] == scores[: len(names)]
        if "filter" not in options:  # a filter that few documents pass is exact in search_vector
            hits = searcher.search_vector(vector, 10, scan_share=0.5, **options).hits
            assert [hit.doc_id for hit in hits] == names


def test_share_of_one_is_exact(searcher: Searcher) -> None:
    for vector in VECTORS:
        whole, given = searcher.search_vector(vector), searcher.search_vector(vector, scan_share=1)
        assert given.hits == whole.hits
        assert (given.matched, given.matched_exact) == (whole.matched, True)


def test_recall_grows_with_the_share(searcher: Searcher) -> None:
    recalls = []
    for share in SHARES:
        found = 0
        for vector in VECTORS:
            best = {hit.doc_id for hit in searcher.search_vector(vector, 10).hits}
            found += len(best & {hit.doc_id for hit in searcher.search_vector(vector, 10, scan_share=share).hits})
        recalls.append(found / (10 * len(VECTORS)))
    assert all(after >= before - 0.01 for before, after in pairwise(recalls)), recalls
    assert recalls[0] < recalls[-1]
    assert recalls[-1] > 0.98


def test_fewer_postings_are_read(index: Path) -> None:
    reader = Searcher.open(index).snapshot.readers[0]
    ids = np.arange(10, dtype=np.int32)
    query = ShardQuery(ids, np.geomspace(1, 0.1, 10).astype(np.float32), np.ones(10, np.uint8), 1, 10)
    read = [reader.match(replace(query, scan_share=share), 0.0).postings for share in (*SHARES, 1.0)]
    assert read == sorted(set(read))


def test_words_of_hybrid_searches_count_as_terms(searcher: Searcher) -> None:
    for fusion in ("sum", "rrf"):
        options: dict[str, Any] = {"text": "word3 lock", "hybrid": Hybrid(fusion=fusion)}
        for vector in VECTORS[:5]:
            found = searcher.search_vector(vector, 10, scan_share=0.5, **options)
            assert len(found.hits) == 10
            assert not found.matched_exact
            if fusion == "sum":
                check_hits(found, everything(searcher, vector, **options))


def test_no_page_follows_a_search_below_one(searcher: Searcher) -> None:
    exact, found = (searcher.search_vector(VECTORS[0], 5, scan_share=share) for share in (1.0, 0.5))
    assert len(found.hits) == 5
    assert (exact.next_page is None, found.next_page) == (False, None)
    with pytest.raises(QueryError, match="leaves out postings that search_after needs"):
        searcher.search_vector(VECTORS[0], 5, scan_share=0.5, search_after=exact.next_page)


def test_deadline_ends_a_search_below_one(searcher: Searcher) -> None:
    late = searcher.search_vector(VECTORS[0], scan_share=0.5, deadline_ms=0)
    assert (late.hits, late.partial, late.matched_exact) == ((), True, False)
    assert not searcher.search_vector(VECTORS[0], scan_share=0.5, deadline_ms=1e6).partial


@pytest.mark.parametrize("vector", [{}, {5: 1.0}, {5: 1e-45, 6: 1e-45}, {"unknown": 1.0}, {5: 1.0, "unknown": 9.0}])
def test_small_vectors(searcher: Searcher, vector: Any) -> None:
    exact, found = (searcher.search_vector(vector, 10, scan_share=share) for share in (1.0, 0.01))
    assert len(found.hits) <= len(exact.hits)
    if len(vector) == 1 or "unknown" in vector:
        assert found.hits == exact.hits


@pytest.mark.parametrize(
    "option",
    [
        {"overlap_threshold": 0.3},
        {"min_terms": 2},
        {"count": True},
        {"sort": "year"},
        {"facets": ["year"]},
    ],
)
def test_options_that_need_all_postings_exclude_shares_below_one(option: dict[str, Any]) -> None:
    (name,) = option
    with pytest.raises(QueryError, match=rf"scan_share=0.5 leaves out postings that {name} needs; give scan_share=1"):
        Request(scan_share=0.5, **option)
    assert Request(scan_share=1, **option).is_exact
    assert not Request(scan_share=np.float32(0.5)).is_exact


def test_query_of_more_terms_than_sums_of_16_bits_hold(searcher: Searcher) -> None:
    vector = {term: 1.0 + term / V for term in range(V)}
    exact = everything(searcher, vector)
    found = searcher.search_vector(vector, 10, scan_share=0.7)
    assert len(found.hits) == 10
    check_hits(found, exact)
