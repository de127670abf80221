import numpy as np
import pytest

from lsr_prod.evaluation.cost import THRESHOLDS, count_matches
from lsr_prod.search import Searcher
from lsr_prod.search.query.sparse_query import required_terms
from tests.evaluation.index_of_vectors import Dense, build, queries


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> tuple[Searcher, Dense]:
    return build(tmp_path_factory.mktemp("matched"))


@pytest.mark.parametrize("at_once", [3, 8192])
def test_counts_equal_brute_force_for_every_kind(
    index: tuple[Searcher, Dense], at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    searcher, dense = index
    monkeypatch.setattr("lsr_prod.evaluation.cost._PER_PRODUCT", at_once)
    monkeypatch.setattr("lsr_prod.evaluation.cost._QUERIES", 5)
    found = count_matches(searcher.snapshot, queries())
    for number, query in enumerate(queries()):
        known = query.ids >= 0
        held = dense.impacts[:, query.ids[known]] > 0  # [N, q]
        shared, weight = held.sum(axis=1), held @ query.weights[known].astype(np.float64)
        whole = query.weights.sum(dtype=np.float64)
        for row, threshold in enumerate(THRESHOLDS):
            if threshold.kind == "count":
                expected = shared >= threshold.value
            elif threshold.kind == "ratio":
                expected = shared >= required_terms(len(query.ids), overlap_threshold=threshold.value, min_terms=1)
            else:
                expected = (weight >= threshold.value * whole - 1e-9) & (shared > 0)
            assert found[row, number] == expected.sum(), (threshold, number)
    assert 0 < found.sum() < found.size * len(dense.ids)


def test_counts_equal_those_of_the_search(index: tuple[Searcher, Dense]) -> None:
    searcher, _ = index
    some = [query for query in queries() if (query.ids >= 0).all()]
    found = count_matches(searcher.snapshot, some)
    for row, threshold in enumerate(THRESHOLDS[:9]):
        name = "min_terms" if threshold.kind == "count" else "overlap_threshold"
        for number, query in enumerate(some):
            vector = dict(zip(query.ids.tolist(), query.weights.tolist(), strict=True))
            assert found[row, number] == searcher.count(vector, **{name: threshold.value})


def test_no_query_gives_no_column(index: tuple[Searcher, Dense]) -> None:
    assert count_matches(index[0].snapshot, []).shape == (len(THRESHOLDS), 0)


def test_counts_of_sampled_documents_are_scaled_to_all(index: tuple[Searcher, Dense]) -> None:
    searcher, dense = index
    everything = count_matches(searcher.snapshot, queries())
    assert (count_matches(searcher.snapshot, queries(), sampled=len(dense.ids)) == everything).all()
    half = count_matches(searcher.snapshot, queries(), sampled=-(-len(dense.ids) // 2))
    assert (half != everything).any()
    assert half[0].sum() == pytest.approx(everything[0].sum(), rel=0.15)
