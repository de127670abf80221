"""The scan against Tantivy's minimum-should-match and against a brute force, on random corpora."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lsr_prod.search import Searcher
from tests.indexing.corpus import STEP, Doc, make_index

V = 12
documents = st.dictionaries(st.integers(0, V - 1), st.integers(1, 255), max_size=6).map(Doc)
corpora = st.dictionaries(st.text(alphabet="abcé0", min_size=1, max_size=4), documents, max_size=40)
vectors = st.dictionaries(st.integers(0, V - 1), st.floats(0.015625, 20, width=32), max_size=V)


def brute_force(
    corpus: dict[str, Doc], vector: dict[int, float], required: int, dk: int
) -> list[tuple[str, float, int]]:
    """Every match with its score, summed in float32 in the query's order, by falling score, ties by rising id."""
    order = sorted(vector.items(), key=lambda item: (-item[1], item[0]))
    found = []
    for doc_id, doc in corpus.items():
        heaviest = dict(sorted(doc.terms.items(), key=lambda item: -item[1])[:dk])
        score, overlap = np.float32(0), 0
        for term, weight in order:
            if term in heaviest:
                score += (np.float32(weight) * np.float32(STEP)) * np.float32(heaviest[term])
                overlap += 1
        if overlap >= required:
            found.append((doc_id, float(score), overlap))
    return sorted(found, key=lambda hit: (-hit[1], hit[0]))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    corpus=corpora,
    queries=st.lists(st.tuples(vectors, st.integers(1, V), st.integers(0, 45)), min_size=1, max_size=6),
    shards=st.integers(1, 7),
    block_size=st.sampled_from([1, 3, 8, 64, 300]),
    dk=st.sampled_from([2, 64]),
    order=st.sampled_from(["content", "id"]),
    deleted=st.sets(st.integers(0, 40)),
)
def test_the_scan_tantivy_and_a_brute_force_agree(corpus, queries, shards, block_size, dk, order, deleted):
    gone = {doc_id for i, doc_id in enumerate(corpus) if i in deleted}
    alive = {doc_id: doc for doc_id, doc in corpus.items() if doc_id not in gone}
    with tempfile.TemporaryDirectory() as folder:
        layout = {"shards": shards, "block_size": block_size, "dk": dk, "order": order}
        make_index(Path(folder), corpus, vocabulary_size=V, deleted=gone, **layout)
        searcher = Searcher.open(folder)
        assert searcher.documents == len(alive)
        for vector, required, k in queries:
            expected = brute_force(alive, vector, required, dk)
            result = searcher.search_vector(vector, k=k, min_terms=required)
            assert [(hit.doc_id, hit.score, hit.overlap) for hit in result.hits] == expected[:k]
            assert result.matched == len(expected) or (not result.matched_exact and result.matched < len(expected))
            counted = searcher.search_vector(vector, k=k, min_terms=required, count=True)
            assert counted.hits == result.hits
            assert (counted.matched, counted.matched_exact) == (len(expected), True)
            assert searcher.match_tantivy(vector, required) == {doc_id for doc_id, _, _ in expected}


def test_equal_scores_rank_by_id_whatever_the_shards(tmp_path):
    corpus = {f"d{i:03d}": Doc({1: 7}) for i in range(200)}
    for shards in (1, 3):
        make_index(tmp_path / str(shards), corpus, vocabulary_size=V, shards=shards, block_size=16)
        hits = Searcher.open(tmp_path / str(shards)).search_vector({1: 2.0}, k=25).hits
        assert [hit.doc_id for hit in hits] == [f"d{i:03d}" for i in range(25)]
        assert {hit.score for hit in hits} == {float(np.float32(2.0) * np.float32(STEP) * np.float32(7))}


@pytest.mark.parametrize("k", [1, 2, 7, 100, 1000])
def test_the_best_k_of_many_blocks(tmp_path, k):
    rng = np.random.default_rng(k)
    corpus = {
        f"d{i:04d}": Doc({int(t): int(rng.integers(1, 6)) for t in rng.choice(V, 5, replace=False)}) for i in range(700)
    }
    make_index(tmp_path, corpus, vocabulary_size=V, block_size=64)
    searcher, vector = Searcher.open(tmp_path), {t: 1.0 + t % 3 for t in range(6)}
    expected = brute_force(corpus, vector, 3, 64)
    hits = searcher.search_vector(vector, k=k, min_terms=3).hits
    assert [(hit.doc_id, hit.score, hit.overlap) for hit in hits] == expected[:k]
