"""Explanations compared with a brute force: contributions, and the rank under every threshold."""

import numpy as np
import pytest

from lsr_prod.errors import QueryError
from lsr_prod.search import Searcher
from tests.indexing.corpus import STEP, Doc, make_index
from tests.search.oracle import brute_force, in_order

V = 20


@pytest.fixture(scope="module")
def corpus() -> dict[str, Doc]:
    rng = np.random.default_rng(2)
    return {
        f"d{i:03d}": Doc({int(t): int(x) for t, x in zip(rng.choice(V, 7, replace=False), impacts, strict=True)})
        for i, impacts in enumerate(np.sort(rng.integers(1, 9, (300, 7)), axis=1)[:, ::-1])
    }


@pytest.fixture(scope="module", params=[(1, 64), (3, 4)], ids=["one shard", "three shards, dk 4"])
def opened(request, corpus, tmp_path_factory) -> tuple[Searcher, int]:
    shards, dk = request.param
    folder = tmp_path_factory.mktemp("explain")
    make_index(folder, corpus, vocabulary_size=V, shards=shards, dk=dk, deleted=["d007", "d123"])
    return Searcher.open(folder), dk


def test_ranks_under_each_threshold_equal_brute_force(corpus, opened):
    searcher, dk = opened
    alive = {doc_id: doc for doc_id, doc in corpus.items() if doc_id not in ("d007", "d123")}
    rng = np.random.default_rng(4)
    for _ in range(25):
        vector = {int(t): float(rng.choice([0.5, 1.0, 1.5])) for t in rng.choice(V, 6, replace=False)}
        qk = [None, 3][int(rng.integers(2))]
        every = {doc_id: (score, overlap) for doc_id, score, overlap in brute_force(alive, vector, 0, dk, qk=qk)}
        by_threshold = [[hit[0] for hit in brute_force(alive, vector, n, dk, qk=qk)] for n in range(1, 7)]
        for doc_id in rng.choice(sorted(alive), 12, replace=False).tolist():
            found = searcher.explain(vector, doc_id, qk=qk)
            assert (found.score, found.overlap) == every[doc_id]
            assert found.ranks == tuple(by_threshold[n].index(doc_id) + 1 for n in range(found.overlap))
            asked = in_order(vector)[:qk]
            heaviest = dict(list(corpus[doc_id].terms.items())[:dk])
            assert [part.term for part in found.contributions] == [f"t{t}" for t, _ in asked if t in heaviest]
            assert list(found.missing) == [f"t{t}" for t, _ in asked if t not in heaviest]
            for part in found.contributions:
                assert part.document_weight == heaviest[int(part.term[1:])] * STEP


def test_terms_outside_vocabulary_are_reported_missing(opened):
    found = opened[0].explain({"unheard": 3.0, 0: 1.0}, "d001")
    assert "unheard" in found.missing
    assert len(found.contributions) + len(found.missing) == 2


def test_explanation_of_empty_query_is_empty(opened):
    found = opened[0].explain({}, "d001")
    assert (found.score, found.overlap, found.ranks, found.missing) == (0.0, 0, (), ())


@pytest.mark.parametrize("doc_id", ["d007", "d999", "", "\ud800", None, 3, ["d001"], pytest.param(10**5000, id="huge")])
def test_explain_rejects_deleted_or_unknown_document(opened, doc_id):
    with pytest.raises(QueryError, match="document"):
        opened[0].explain({1: 1.0}, doc_id)


def test_rank_above_ten_thousand_is_none(tmp_path, monkeypatch):
    monkeypatch.setattr("lsr_prod.search.explain.MAX_K", 20)
    make_index(tmp_path, {f"d{i:02d}": Doc({1: 5, 2: 100 - i}) for i in range(40)}, vocabulary_size=V)
    searcher = Searcher.open(tmp_path)
    assert searcher.explain({1: 1.0, 2: 1.0}, "d19").ranks == (20, 20)
    assert searcher.explain({1: 1.0, 2: 1.0}, "d20").ranks == (None, None)
