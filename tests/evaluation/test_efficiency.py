import pytest

from lsr_prod.evaluation.efficiency import flops, percentile


def test_flops_equals_equation_1() -> None:
    documents = [{1, 2}, {2}, {2, 3}, set()]
    queries = [[1, 2], [2, 9]]
    frequency = {term: sum(term in document for document in documents) for term in (1, 2, 3)}
    by_pairs = sum(len(set(query) & document) for query in queries for document in documents)
    assert flops(queries, frequency, len(documents)) == pytest.approx(by_pairs / (2 * 4)) == pytest.approx(7 / 8)
    assert flops([], frequency, 4) == 0.0


def test_percentile_of_no_values_is_zero() -> None:
    assert percentile([], 50) == 0.0
    assert percentile([1.0, 2.0, 3.0], 50) == 2.0
