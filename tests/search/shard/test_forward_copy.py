"""Scores computed from the forward copy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsr_prod.search.kernels import native

V = 10
_documents = st.lists(st.dictionaries(st.integers(0, V - 1), st.integers(1, 255), max_size=V), min_size=1, max_size=8)
_queries = st.lists(st.tuples(st.integers(0, V - 1), st.floats(0, 9, width=32)), max_size=V, unique_by=lambda t: t[0])


def arrays(documents):
    offsets = np.concatenate([[0], np.cumsum([len(document) for document in documents])]).astype(np.uint32)
    terms = np.array([term for document in documents for term in document], np.uint16)
    return offsets, terms, np.array([impact for document in documents for impact in document.values()], np.uint8)


def run(forward, ordinals, dk, query):
    ids, weights = np.array([t for t, _ in query], np.int32), np.array([w for _, w in query], np.float32)
    scores, counts = np.full(len(ordinals), -1, np.float32), np.full(len(ordinals), 9, np.uint16)
    state = native.score(*forward, np.array(ordinals, np.int64), dk, ids, weights, V, scores, counts)
    return state == 0, scores.tolist(), counts.tolist()


@settings(deadline=None)
@given(_documents, _queries, st.integers(1, 12), st.data())
def test_scores_are_summed_in_query_order(documents, query, dk, data):
    ordinals = data.draw(st.lists(st.integers(0, len(documents) - 1), max_size=10))
    expected_scores, expected_counts = [], []
    for ordinal in ordinals:
        heaviest = dict(list(documents[ordinal].items())[:dk])
        total = np.float32(0)
        for term, weight in query:
            if term in heaviest:
                total += np.float32(weight) * np.float32(heaviest[term])
        expected_scores.append(float(total))
        expected_counts.append(sum(term in heaviest for term, _ in query))
    assert run(arrays(documents), ordinals, dk, query) == (True, expected_scores, expected_counts)


@pytest.mark.parametrize(
    ("name", "value"),
    [("offsets", [0, 9, 3]), ("offsets", [0, (1 << 32) - 1, 3]), ("offsets", [2, 1, 3]), ("terms", [1, 10, 2])],
)
def test_damaged_arrays_are_reported(name, value):
    offsets, terms, impacts = arrays([{1: 5, 2: 6}, {3: 7}])
    if name == "offsets":
        offsets[:] = value
    else:
        terms[:] = value
    query = [(1, 1.0), (2, 1.0)]
    assert run((offsets, terms, impacts), [0, 1], 64, query)[0] is False
    assert run(arrays([{1: 5, 2: 6}, {3: 7}]), [0, 1], 64, query) == (True, [11.0, 0.0], [2, 0])
