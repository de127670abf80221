import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lsr_prod.storage.formats.sparse import SparseBatch

VECTORS = st.lists(st.dictionaries(st.integers(0, 30), st.sampled_from([0.0, 0.5, 1.0, 2.0, 7.5]), max_size=6))


def _ordered(vector: dict[int, float]) -> list[tuple[int, float]]:
    return sorted(((t, w) for t, w in vector.items() if w > 0), key=lambda pair: (-pair[1], pair[0]))


def _batch(vectors: list[dict[int, float]]) -> SparseBatch:
    width = 6
    terms = np.zeros((len(vectors), width), np.int64)
    weights = np.zeros((len(vectors), width), np.float32)
    for i, vector in enumerate(vectors):
        for j, (term, weight) in enumerate(sorted(vector.items(), key=lambda pair: -pair[1])):
            terms[i, j], weights[i, j] = term, weight
    return SparseBatch.from_topk(terms, weights)


def _rows(batch: SparseBatch) -> list[list[tuple[int, float]]]:
    return [list(zip(*(part.tolist() for part in batch.row(i)), strict=True)) for i in range(len(batch))]


@given(VECTORS)
def test_from_topk_orders_rows_and_drops_unused_places(vectors: list[dict[int, float]]) -> None:
    assert _rows(_batch(vectors)) == [_ordered(vector) for vector in vectors]


@given(VECTORS, st.integers(0, 4))
def test_top_keeps_the_heaviest_terms(vectors: list[dict[int, float]], k: int) -> None:
    assert _rows(_batch(vectors).top(k)) == [_ordered(vector)[:k] for vector in vectors]


@given(VECTORS, st.integers(1, 16))
def test_mass_keeps_the_fewest_heaviest_terms_that_hold_the_share(vectors: list[dict[int, float]], part: int) -> None:
    def expected(row: list[tuple[int, float]]) -> list[tuple[int, float]]:
        enough = part * sum(weight for _, weight in row)  # sixteenths, so that every sum is exact
        sizes = range(1, len(row) + 1)
        return row[: next((n for n in sizes if 16 * sum(weight for _, weight in row[:n]) >= enough), 0)]

    assert _rows(_batch(vectors).mass(part / 16)) == [expected(_ordered(vector)) for vector in vectors]


@given(st.lists(st.floats(2**-20, 2**20, width=32), min_size=1, max_size=300), st.floats(0.01, 0.99))
def test_mass_of_a_vector_does_not_depend_on_its_batch(weights: list[float], share: float) -> None:
    row = SparseBatch.from_topk(np.arange(len(weights))[None], np.array([weights], np.float32))
    before = SparseBatch.from_topk(np.arange(2)[None], np.array([[1e30, 1e-30]], np.float32))
    assert _rows(SparseBatch.concatenate([before, row]).mass(share))[1] == _rows(row.mass(share))[0]


@given(VECTORS, VECTORS)
def test_concatenate_and_take_move_whole_rows(left: list[dict[int, float]], right: list[dict[int, float]]) -> None:
    both = SparseBatch.concatenate([_batch(left), _batch(right)])
    rows = [_ordered(vector) for vector in left + right]
    assert _rows(both) == rows
    order = np.arange(len(rows))[::-1].copy()
    assert _rows(both.take(order)) == rows[::-1]


@given(VECTORS)
def test_spread_puts_rows_in_their_places_and_empty_vectors_elsewhere(vectors: list[dict[int, float]]) -> None:
    places = [2 * i + 1 for i in range(len(vectors))][::-1]
    expected: list[list[tuple[int, float]]] = [[] for _ in range(2 * len(vectors) + 1)]
    for place, vector in zip(places, vectors, strict=True):
        expected[place] = _ordered(vector)
    assert _rows(_batch(vectors).spread(places, len(expected))) == expected
