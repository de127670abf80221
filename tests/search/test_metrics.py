"""Metrics that the Prometheus observer exports."""

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from lsr_prod.errors import QueryError
from lsr_prod.indexing import rollback
from lsr_prod.search import Searcher
from lsr_prod.search.observers import PrometheusObserver
from tests.indexing.corpus import Doc, make_index

CORPUS = {"a": Doc({0: 5, 1: 2}), "b": Doc({1: 9})}


def test_prometheus_exports_queries_stages_and_version(tmp_path):
    make_index(tmp_path, CORPUS, vocabulary_size=4)
    registry = CollectorRegistry()
    searcher = Searcher.open(tmp_path, observer=PrometheusObserver(registry))
    first = searcher.publication.version
    for _ in range(3):
        searcher.search_vector({1: 1.0})
    with pytest.raises(QueryError):
        searcher.search_vector({1: -1.0})
    read = registry.get_sample_value
    assert read("lsr_prod_search_queries_total", {"outcome": "full"}) == 3
    assert read("lsr_prod_search_queries_total", {"outcome": "QueryError"}) == 1
    assert read("lsr_prod_search_seconds_count", {"stage": "match"}) == 3
    assert 0 < read("lsr_prod_search_seconds_sum", {"stage": "match"}) < 60
    assert read("lsr_prod_search_matched_sum") == 6
    assert read("lsr_prod_search_hits_sum") == 6
    assert (read("lsr_prod_search_publication"), read("lsr_prod_search_documents")) == (1, 2)
    make_index(tmp_path, {**CORPUS, "c": Doc({0: 1})}, vocabulary_size=4)
    assert searcher.refresh()
    assert (read("lsr_prod_search_publication"), read("lsr_prod_search_documents")) == (2, 3)
    assert read("lsr_prod_search_version_info", {"version": first}) == 0
    assert read("lsr_prod_search_version_info", {"version": searcher.publication.version}) == 1
    assert b"# HELP lsr_prod_search_queries" in generate_latest(registry)


def test_a_rollback_to_the_open_version_is_the_current_publication(tmp_path):
    make_index(tmp_path, CORPUS, vocabulary_size=4)
    registry = CollectorRegistry()
    searcher = Searcher.open(tmp_path, observer=PrometheusObserver(registry))
    snapshot, version = searcher.snapshot, searcher.publication.version
    make_index(tmp_path, {**CORPUS, "c": Doc({0: 1})}, vocabulary_size=4)  # nobody opened it
    rollback(tmp_path, 1)
    assert not searcher.refresh()
    assert (searcher.snapshot, searcher.publication.number, searcher.publication.version) == (snapshot, 3, version)
    assert registry.get_sample_value("lsr_prod_search_publication") == 3
    assert registry.get_sample_value("lsr_prod_search_version_info", {"version": version}) == 1


def test_query_past_deadline_counts_as_partial(tmp_path):
    make_index(tmp_path, CORPUS, vocabulary_size=4)
    registry = CollectorRegistry()
    searcher = Searcher.open(tmp_path, observer=PrometheusObserver(registry))
    assert searcher.search_vector({1: 1.0}, deadline_ms=0).partial
    assert registry.get_sample_value("lsr_prod_search_queries_total", {"outcome": "partial"}) == 1
