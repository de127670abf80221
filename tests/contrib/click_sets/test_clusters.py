import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from lsr_prod_contrib.click_sets.clusters import cluster_queries, given_clusters


def cluster(pairs, queries, *, documents=100, size=100):
    query, document = (np.array(column, np.int64) for column in zip(*sorted(pairs), strict=True))
    return cluster_queries(query, document, queries, max_document_queries=documents, max_cluster_queries=size)


def groups(of_query):
    return [set(np.flatnonzero(of_query == number).tolist()) for number in range(of_query.max(initial=-1) + 1)]


def test_queries_that_share_a_document_are_in_one_cluster():
    found = cluster([(0, 0), (2, 0), (2, 1), (3, 1), (4, 2)], 6)
    assert found.of_query.tolist() == [0, -1, 0, 0, 1, -1]
    assert (found.count, found.largest, found.popular_documents) == (2, 3, 0)


def test_popular_document_does_not_connect():
    found = cluster([(q, 0) for q in range(5)] + [(0, 1), (1, 1)], 5, documents=4)
    assert groups(found.of_query) == [{0, 1}, {2}, {3}, {4}]
    assert found.popular_documents == 1


def test_cluster_that_is_too_large_is_split_at_its_most_popular_documents():
    pairs = [(q, 0) for q in range(6)] + [(0, 1), (1, 1), (2, 2), (3, 2), (8, 3), (9, 3)]
    found = cluster(pairs, 10, size=4)
    assert groups(found.of_query) == [{0, 1}, {2, 3}, {4}, {5}, {8, 9}]
    assert (found.largest, found.split, found.count) == (6, 1, 5)
    assert found.rounds == 5  # 100, 50, 25, 12, 6, 3


def test_cluster_of_pairs_alone_is_split_into_queries():
    found = cluster([(q, q) for q in range(5)] + [(q + 1, q) for q in range(4)], 5, size=2)
    assert groups(found.of_query) == [{0}, {1}, {2}, {3}, {4}]


@settings(max_examples=60, deadline=None)
@given(
    st.sets(st.tuples(st.integers(0, 14), st.integers(0, 9)), min_size=1),
    st.integers(2, 8),
    st.integers(2, 8),
)
def test_clusters_equal_those_of_repeated_search(pairs, documents, size):
    found = cluster(pairs, 15, documents=documents, size=size)
    assert {frozenset(group) for group in groups(found.of_query)} == reference(pairs, documents, size)
    firsts = [min(group) for group in groups(found.of_query)]
    assert firsts == sorted(firsts)


def reference(pairs, documents, size):
    queries = {query for query, _ in pairs}
    readers = {document: {q for q, d in pairs if d == document} for _, document in pairs}
    limit = dict.fromkeys(queries, documents)
    while True:
        found, left = set(), set(queries)
        while left:
            group = {left.pop()}
            while more := {
                other
                for reading in readers.values()
                for query in group & reading
                for other in reading
                if len(reading) <= min(limit[query], limit[other]) and other not in group
            }:
                group |= more
            left -= group
            found.add(frozenset(group))
        large = {query for group in found if len(group) > size for query in group}
        if not large:
            return found
        documents //= 2
        for query in large:
            limit[query] = documents


def test_given_clusters_are_numbered_by_first_query_and_empty_names_are_none():
    labels = pa.array(["z", "", "a", "z", "b"], pa.large_string())
    found = given_clusters(labels, np.array([0, 0, 1, 2, 3]))
    assert found.of_query.tolist() == [0, -1, 1, 0, -1]
    assert (found.count, found.largest) == (2, 2)
