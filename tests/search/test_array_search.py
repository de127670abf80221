"""Batches of arrays answer as single vectors do."""

from typing import Any

import numpy as np
import pytest

from lsr_prod.errors import QueryError
from lsr_prod.search import Searcher, field
from tests.indexing.corpus import Doc, make_index
from tests.search.test_match import topics

V = 300


def batch(vectors: list[dict[int, float]]) -> tuple[Any, Any, Any]:
    offsets = np.cumsum([0, *map(len, vectors)]).astype(np.int64)
    terms = np.array([term for vector in vectors for term in vector], np.int32)
    return offsets, terms, np.array([weight for vector in vectors for weight in vector.values()], np.float32)


@pytest.fixture(scope="module", params=[1, 3])
def searcher(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Searcher:
    folder = tmp_path_factory.mktemp("arrays") / "index"
    documents = topics(3000, 8)
    gone = set(list(documents)[::7])
    make_index(
        folder,
        documents,
        vocabulary_size=V,
        shards=request.param,
        deleted=gone,
        attributes={"year": "int64"},
    )
    return Searcher.open(folder)


@pytest.mark.parametrize(
    "options",
    [{}, {"min_terms": 2}, {"overlap_threshold": 0.4}, {"filter": field("year") < 300}, {"min_score": 40.0}],
)
@pytest.mark.parametrize("k", [0, 1, 10, 3000])
def test_arrays_equal_single_vectors(searcher: Searcher, options: dict[str, Any], k: int) -> None:
    rng = np.random.default_rng(k)
    vectors: list[dict[int, float]] = [
        {int(t): float(w) for t, w in zip(rng.choice(V, n, replace=False), rng.exponential(size=n), strict=True)}
        for n in (0, 1, 3, 9, 40)
    ]
    vectors += [{20: 1.0}, {20: 1.0, 21: 0.0}]  # many ties, and a term without weight
    result = searcher.search_arrays(*batch(vectors), k, **options)
    names = result.doc_ids()
    assert result.scores.shape == result.documents.shape == result.overlaps.shape == (len(vectors), k)
    for at, vector in enumerate(vectors):
        hits, found = searcher.search_vector(vector, k, **options).hits, int(result.numbers[at])
        rows = zip(names[at], result.scores[at, :found].tolist(), result.overlaps[at, :found].tolist(), strict=True)
        assert list(rows) == [(hit.doc_id, hit.score, hit.overlap) for hit in hits]
        assert (result.documents[at, found:] == -1).all()


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        ([{1: 1.0}, {1: -1.0}], "query 1: the weight -1"),
        ([{1: float("nan")}], "query 0: the weight nan"),
        ([{1: 1.0}, {}, {V: 1.0}], "query 2: term 300 is not possible"),
        ([{-1: 1.0}], "query 0: term -1"),
        ([{1: 3e38, 2: 3e38}], "query 0: the query's weights are so large"),
    ],
)
def test_wrong_queries_are_named(searcher: Searcher, vectors: list[dict[int, float]], message: str) -> None:
    with pytest.raises(QueryError, match=message):
        searcher.search_arrays(*batch(vectors))


def test_wrong_arrays_are_refused(searcher: Searcher) -> None:
    offsets, ids, weights = batch([{1: 1.0, 2: 1.0}])
    for given in (
        (offsets.astype(np.int32), ids, weights),
        (offsets, ids.tolist(), weights),
        (offsets, ids, weights.astype(np.float64)),
        (np.array([0, 5, 2]), ids, weights),
        (np.array([1, 2]), ids, weights),
        (offsets, ids[:1], weights),
    ):
        with pytest.raises(QueryError):
            searcher.search_arrays(*given)
    with pytest.raises(QueryError, match="given twice"):
        searcher.search_arrays(offsets, np.array([1, 1], np.int32), weights)


def test_threshold_does_not_depend_on_an_equal_one_of_another_type(searcher: Searcher) -> None:
    arrays, single = batch([dict.fromkeys(range(25), 1.0)]), np.float32(0.28)
    thresholds: list[Any] = [float(single), single, float(single)]  # the first needs 8 of 25 terms, the second 7
    found = [searcher.search_arrays(*arrays, 3000, overlap_threshold=each).numbers.tolist() for each in thresholds]
    vector: Any = dict.fromkeys(range(25), 1.0)
    assert found == [[searcher.search_vector(vector, 0, overlap_threshold=each).matched] for each in thresholds]


def test_deadline_is_that_of_the_batch(searcher: Searcher) -> None:
    late = searcher.search_arrays(*batch([{20: 1.0}] * 50), deadline_ms=0.0)
    assert late.partial
    assert not late.numbers.any()
    assert not searcher.search_arrays(*batch([{20: 1.0}] * 50), deadline_ms=1e6).partial


def test_index_without_matches(tmp_path: Any) -> None:
    make_index(tmp_path, {"a": Doc({1: 5})}, vocabulary_size=V)
    found = Searcher.open(tmp_path).search_arrays(*batch([{2: 1.0}, {1: 1.0}]), 3)
    assert found.numbers.tolist() == [0, 1]
    assert found.doc_ids() == [[], ["a"]]
