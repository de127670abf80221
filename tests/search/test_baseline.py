"""Tantivy over the shards of a version; deleted documents are not found."""

import pytest

from lsr_prod.errors import QueryError
from lsr_prod.search import Searcher
from tests.indexing.corpus import Doc, make_index

CORPUS = {f"d{i:02d}": Doc({i % 3: 5}, f"lock {'thread' if i % 2 else 'file'} {'and ' * (i % 4)}") for i in range(40)}
GONE = {f"d{i:02d}" for i in range(0, 40, 4)}


@pytest.fixture
def searcher(tmp_path):
    make_index(tmp_path, CORPUS, vocabulary_size=3, shards=3, deleted=GONE)
    return Searcher.open(tmp_path)


def expected(word: str) -> set[str]:
    return {doc_id for doc_id, doc in CORPUS.items() if word in doc.text} - GONE


def test_boolean_queries_match_expected_documents(searcher):
    assert searcher.match_boolean("lock AND NOT thread") == expected("file")
    assert searcher.match_boolean("thread OR file") == expected("lock")
    assert searcher.match_boolean("nothing") == set()
    for broken in ("lock AND (", "year:[2020 TO *]", "a" * 5000):
        with pytest.raises(QueryError):
            searcher.match_boolean(broken)
    with pytest.raises(QueryError, match="not a string"):
        searcher.match_boolean(7)


@pytest.mark.parametrize("k", [1, 5, 12, 100])
def test_bm25_returns_k_documents_that_are_not_deleted(searcher, k):
    hits = searcher.bm25("file", k).hits
    assert len(hits) == min(k, len(expected("file")))
    assert {hit.doc_id for hit in hits} <= expected("file")
    scores = [hit.score for hit in hits]
    assert scores == sorted(scores, reverse=True)


def test_terms_are_matched_in_every_shard(searcher):
    assert searcher.match_terms([0, 1], 1) == {i for i, doc in CORPUS.items() if {0, 1} & set(doc.terms)} - GONE
    assert searcher.match_terms([0, 1], 2) == set()
