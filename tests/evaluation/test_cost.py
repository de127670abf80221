from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsr_prod.evaluation.cost import TermCounts, measure_cost, multiplications, percentile, postings_curve
from lsr_prod.search.shard.postings import ShardQuery
from tests.evaluation.index_of_vectors import build, queries


def test_multiplications_equal_the_common_terms_of_all_pairs() -> None:
    documents = [{1, 2}, {2}, {2, 3}, set()]
    queries = [[1, 2], [2, -1]]
    by_query = [sum(len(set(query) & document) for document in documents) for query in queries]
    lengths = np.array([sum(term in document for document in documents) for term in range(4)])
    found = multiplications([np.array(query, np.int32) for query in queries], lengths)
    assert found.tolist() == by_query == [4, 3]


def test_percentile_of_no_values_is_zero() -> None:
    assert percentile([], 50) == 0.0
    assert percentile([1.0, 2.0, 3.0], 50) == 2.0


@given(st.lists(st.integers(0, 40), min_size=1, max_size=30))
def test_term_counts_equal_numpy(lengths: list[int]) -> None:
    found = TermCounts.of(lengths)
    expected = (np.mean(lengths), np.percentile(lengths, 50), np.percentile(lengths, 95))
    assert (found.mean, found.p50, found.p95) == pytest.approx(expected)


def test_term_counts_of_nothing_are_zero() -> None:
    assert TermCounts.of([]) == TermCounts.of_histogram(np.zeros(3, np.int64)) == TermCounts(0.0, 0.0, 0.0)


def test_postings_curve_counts_empty_lists() -> None:
    found = postings_curve(np.array([0, 4, 0, 8]))
    assert (found.mean, found.variance, found.std, found.max, found.empty) == (3.0, 11.0, pytest.approx(11**0.5), 8, 2)
    assert found.curve == [(1, 8), (2, 4), (3, 0), (4, 0)]
    assert postings_curve(np.zeros(0, np.int64)).curve == []


def test_long_curve_has_at_most_200_points_at_logarithmic_distances() -> None:
    lengths = np.random.default_rng(0).permutation(50_000)
    curve = postings_curve(lengths).curve
    assert len(curve) <= 200
    assert (curve[0], curve[-1]) == ((1, 49_999), (50_000, 0))
    assert all(length == 50_000 - rank for rank, length in curve)
    ratios = [later / rank for (rank, _), (later, _) in zip(curve[-20:], curve[-19:], strict=False)]
    assert max(ratios) - min(ratios) < 0.01


def test_cost_of_an_index_equals_brute_force(tmp_path: Path) -> None:
    searcher, dense = build(tmp_path)
    some = queries()
    found = measure_cost(searcher.snapshot, some, sampled=4)
    held = dense.impacts > 0
    expected = TermCounts.of(held.sum(axis=1))
    assert found.l0_document == expected
    assert found.l0_query == TermCounts.of([len(query.ids) for query in some])
    assert found.by_query.terms == [len(query.ids) for query in some]
    frequencies = [searcher.document_frequency(term) for term in range(held.shape[1])]
    assert found.by_query.multiplications == [
        sum(frequencies[term] for term in query.ids if term >= 0) for query in some
    ]
    assert found.postings.mean == pytest.approx(np.mean(frequencies))
    assert found.postings.variance == pytest.approx(np.var(frequencies))
    assert found.postings.empty == frequencies.count(0) >= 2
    assert found.bytes == {
        part: sum(shard.bytes_by_part[part] for shard in searcher.version.shards)
        for part in searcher.version.shards[0].bytes_by_part
    }
    assert found.sampled == 4
    assert [(one.kind, one.threshold) for one in found.matched[:2]] == [("count", 1), ("count", 2)]
    sampled = [some[i] for i in (0, 3, 6, 9)]
    matching = [held[:, query.ids[query.ids >= 0]].any(axis=1).sum() for query in sampled]
    assert found.matched[0].documents == pytest.approx(np.mean(matching))
    assert found.postings_read == pytest.approx(np.mean(found.by_query.multiplications))
    none = measure_cost(searcher.snapshot, [], sampled=4)
    assert (none.matched, none.l0_query.mean, none.sampled, none.postings_read) == ([], 0.0, 0, 0.0)


def test_a_search_reads_all_postings_of_its_terms(tmp_path: Path) -> None:
    """Deleted documents have postings, too; terms outside the vocabulary have none."""
    snapshot = build(tmp_path)[0].snapshot
    some = queries()
    read = []
    for query in some:
        known = query.ids >= 0
        ids, weights = query.ids[known], query.scaled(snapshot.version.impact_step)[known]
        asked = ShardQuery(ids, weights, np.ones(len(ids), np.uint8), 1, 10)
        read.append(sum(reader.match(asked, 0.0).postings for reader in snapshot.readers.values()))
    assert read == multiplications([query.ids for query in some], snapshot.document_frequencies).tolist()
    assert max(read) > 0
