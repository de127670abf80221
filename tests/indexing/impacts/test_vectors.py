"""Vectors of a shard: conversion and checks of rows, selection of rows and terms."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsr_prod.errors import ArtifactError
from lsr_prod.indexing.impacts.vectors import Vectors, VectorSpill

V = 50
_rows = st.lists(st.lists(st.tuples(st.integers(0, V - 1), st.integers(1, 255)), max_size=6, unique_by=lambda t: t[0]))


def table(rows: list[list[tuple[int, int]]]) -> pa.Table:
    return pa.table(
        {
            "terms": pa.array([[term for term, _ in row] for row in rows], pa.list_(pa.int32())),
            "impacts": pa.array([[impact for _, impact in row] for row in rows], pa.list_(pa.int16())),
        }
    )


def as_rows(vectors: Vectors) -> list[list[tuple[int, int]]]:
    pairs = list(zip(vectors.terms.tolist(), vectors.impacts.tolist(), strict=True))
    bounds = vectors.offsets.tolist()
    return [pairs[start:stop] for start, stop in pairwise(bounds)]


def heaviest_first(rows: list[list[tuple[int, int]]]) -> list[list[tuple[int, int]]]:
    """Sort stably: equal impacts keep the order of the table."""
    return [sorted(row, key=lambda pair: -pair[1]) for row in rows]


@settings(deadline=None)
@given(_rows, st.integers(0, 8), st.randoms(use_true_random=False))
def test_vectors_are_sorted_by_impact_and_taken_in_any_order(rows, dk, random):
    vectors = Vectors.from_rows(table(rows), V)
    expected = heaviest_first(rows)
    assert as_rows(vectors) == expected
    assert vectors.lengths.tolist() == [len(row) for row in rows]
    order = random.sample(range(len(rows)), len(rows))
    assert as_rows(vectors.take(np.array(order, np.uint32))) == [expected[i] for i in order]
    assert as_rows(vectors.top(dk)) == [row[:dk] for row in expected]


@settings(deadline=None)
@given(_rows.filter(bool))
def test_vectors_from_a_slice_hold_only_its_rows(rows):
    sliced = table([[(1, 1)], *rows, [(2, 2)]]).slice(1, len(rows))
    assert as_rows(Vectors.from_rows(sliced, V)) == heaviest_first(rows)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([(V, 1)], "out of range"),
        ([(-1, 1)], "out of range"),
        ([(1, 0)], "out of range"),
        ([(1, 256)], "out of range"),
        ([(1, -3)], "out of range"),
        ([(1, 2), (3, 4), (1, 5)], "repeats a term"),
    ],
)
def test_vectors_reject_a_damaged_table(row, message):
    with pytest.raises(ArtifactError, match=message):
        Vectors.from_rows(table([[(1, 1)], row]), V)


def test_vectors_reject_rows_with_fewer_impacts_than_terms():
    rows = pa.table(
        {"terms": pa.array([[1, 2]], pa.list_(pa.int32())), "impacts": pa.array([[1]], pa.list_(pa.int16()))}
    )
    with pytest.raises(ArtifactError, match="as many impacts"):
        Vectors.from_rows(rows, V)


@pytest.mark.parametrize(("size", "dtype"), [(V, np.uint16), (1 << 16, np.uint16), ((1 << 16) + 1, np.int32)])
def test_terms_have_two_bytes_if_the_vocabulary_allows(tmp_path, size, dtype):
    parts = [[[(1, 3), (7, 9)], []], [[(size - 1, 1)]], []]
    spill = VectorSpill(tmp_path, size)
    for part in parts:
        spill.add(Vectors.from_rows(table(part), size))
    vectors = spill.finish()
    assert vectors.terms.dtype == dtype
    assert as_rows(vectors) == heaviest_first([row for part in parts for row in part])


def test_empty_spill_has_no_vectors(tmp_path):
    assert len(VectorSpill(tmp_path, V).finish()) == 0
