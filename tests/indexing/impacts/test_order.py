"""Documents ordered by content."""

import numpy as np
import pytest

from lsr_prod.indexing.impacts.vectors import Vectors, order_documents

V = 200


def vectors(rows: list[list[int]]) -> Vectors:
    lengths = [len(row) for row in rows]
    terms = np.array([term for row in rows for term in row], np.uint16)
    return Vectors(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), terms, np.ones(len(terms), np.uint8))


def clustered(n: int, seed: int = 0) -> Vectors:
    """Twenty topics of ten terms, mixed."""
    rng = np.random.default_rng(seed)
    return vectors(
        [(rng.integers(0, 20) * 10 + rng.choice(10, rng.integers(1, 6), replace=False)).tolist() for _ in range(n)]
    )


def runs(rows: Vectors, order: np.ndarray, block_size: int) -> int:
    """(term, block) pairs: what a query has to read."""
    ordered = rows.take(order)
    documents = np.repeat(np.arange(len(ordered)), ordered.lengths)
    return len(np.unique(ordered.terms.astype(np.int64) * len(rows) + documents // block_size))


@pytest.mark.parametrize("n", [0, 1, 2, 15, 16, 17, 33, 100, 1000])
def test_order_is_a_permutation(n):
    order = order_documents(clustered(n), V, 16)
    assert order.dtype == np.uint32
    assert sorted(order.tolist()) == list(range(n))


@pytest.mark.parametrize("block_size", [16, 64])
def test_terms_occur_in_fewer_blocks_after_ordering(block_size):
    rows, rng = clustered(4000, 3), np.random.default_rng(1)
    mixed = runs(rows, rng.permutation(len(rows)), block_size)
    assert runs(rows, order_documents(rows, V, block_size), block_size) < 0.5 * mixed


def test_order_of_empty_and_identical_documents():
    for rows in ([[]] * 100, [[1, 2, 3]] * 100, [[]] * 50 + [[5]] * 50):
        assert sorted(order_documents(vectors(rows), V, 8).tolist()) == list(range(100))
