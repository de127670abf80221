import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsr_prod.errors import TrainingError
from lsr_prod.training.batch_sampler import WINDOW, BatchSampler, KeysOfRows
from lsr_prod.training.twins import repeated, rows_apart, spread_twins

small_keys = st.integers(0, 12)


def plain_repeated(queries: list[int], positives: list[int]) -> list[bool]:
    return [q in queries[:i] or p in positives[:i] for i, (q, p) in enumerate(zip(queries, positives, strict=True))]


@given(st.lists(st.tuples(small_keys, small_keys), min_size=1, max_size=12))
def test_repeated_rows_have_query_or_positive_of_an_earlier_row(rows: list[tuple[int, int]]):
    queries, positives = zip(*rows, strict=True)
    found = repeated(np.array([queries]), np.array([positives]))
    assert found[0].tolist() == plain_repeated(list(queries), list(positives))


@given(
    st.lists(st.tuples(small_keys, small_keys), max_size=6),
    st.lists(st.tuples(small_keys, small_keys), max_size=15),
    st.integers(0, 8),
)
def test_rows_apart_are_twins_of_no_row_and_cannot_be_extended(
    batch: list[tuple[int, int]], more: list[tuple[int, int]], limit: int
):
    arrays = [np.array([row[side] for row in rows], np.int64) for rows in (batch, more) for side in (0, 1)]
    chosen = rows_apart(*arrays, limit).tolist()
    assert len(chosen) <= limit
    queries, positives = ({row[side] for row in batch} for side in (0, 1))
    for row in chosen:
        assert more[row][0] not in queries
        assert more[row][1] not in positives
        queries.add(more[row][0])
        positives.add(more[row][1])
    if len(chosen) < limit:
        assert all(query in queries or positive in positives for query, positive in more)


@pytest.mark.long
@given(st.integers(1, 20), st.integers(1, 12), st.integers(1, 300), st.integers(0, 10_000))
@settings(max_examples=60)
def test_spread_keeps_all_rows_and_adds_no_twin(batches: int, width: int, different: int, seed: int):
    draw = np.random.default_rng(seed)
    queries, positives = (np.sort(draw.integers(0, different, batches * width)).reshape(batches, -1) for _ in range(2))
    order = spread_twins([queries, positives], seed)
    assert sorted(order.ravel().tolist()) == list(range(batches * width))
    before = repeated(queries, positives)
    after = repeated(queries.ravel()[order], positives.ravel()[order])
    assert after.sum() <= before.sum()
    if not before.any():
        assert order.ravel().tolist() == list(range(batches * width))
    np.testing.assert_array_equal(order, spread_twins([queries, positives], seed))


@pytest.mark.parametrize(("size", "left"), [(2, 0), (4, 0), (16, 0), (64, 0.4)])
def test_spread_separates_equal_positives(size: int, left: float):
    # Sorted by length, equal positives are neighbours: whole batches of them.
    positives = (np.arange(64 * 64) // size).reshape(64, 64)
    order = spread_twins([positives], 3)
    assert repeated(positives).mean() == 1 - 1 / size
    assert repeated(positives.ravel()[order]).mean() <= left


@pytest.mark.parametrize("enough", [0, 1000])
def test_few_rows_move_to_near_batches(enough: int):
    positives = (np.arange(64 * 128) // 4).reshape(64, 128)
    order = spread_twins([positives], 0, enough=enough)
    moved = np.abs(order // 128 - np.arange(64)[:, None])
    assert np.quantile(moved, 0.9) <= (6 if enough == 0 else 3)
    left = repeated(positives.ravel()[order]).sum()
    assert left == 0 if enough == 0 else 0 < left <= 1000


def keys_of(queries: np.ndarray, positives: np.ndarray) -> KeysOfRows:
    return lambda rows: (queries[rows], positives[rows])


def epoch_of(sampler: BatchSampler, epoch: int) -> np.ndarray:
    first = epoch * sampler.steps_per_epoch
    return np.stack([sampler.rows_of(first + step) for step in range(sampler.steps_per_epoch)])


@pytest.mark.long
@given(
    rows=st.integers(40, 900),
    queries=st.integers(2, 12),
    seed=st.integers(0, 2**31),
    grouped=st.booleans(),
    epoch=st.integers(0, 3),
)
@settings(max_examples=40)
def test_unique_batches_have_no_twins_in_any_epoch(rows: int, queries: int, seed: int, grouped: bool, epoch: int):
    draw = np.random.default_rng(seed)
    of_queries, of_positives = (draw.zipf(1.4, rows) % (rows // 2) for _ in range(2))
    lengths = (of_positives % 50).astype(np.int32) if grouped else None
    arguments = {"lengths": lengths, "keys": keys_of(of_queries, of_positives), "unique": True}
    try:
        batches = epoch_of(BatchSampler(rows, queries, seed, **arguments), epoch)
    except TrainingError:
        assume_few(of_queries, of_positives, queries)
        return
    assert batches.shape == (rows // queries, queries)
    for batch in batches:
        assert not any(plain_repeated(of_queries[batch].tolist(), of_positives[batch].tolist()))
        if lengths is not None:
            assert (np.diff(lengths[batch]) >= 0).all()
    # A resumed run asks for any step first, and gets the same rows.
    step = epoch * len(batches) + len(batches) // 2
    again = BatchSampler(rows, queries, seed, **arguments)
    np.testing.assert_array_equal(again.rows_of(step), batches[len(batches) // 2])


def assume_few(queries: np.ndarray, positives: np.ndarray, wanted: int) -> None:
    """Rows chosen one after the other give at least half of what is possible."""
    greedy = rows_apart(np.empty(0, np.int64), np.empty(0, np.int64), queries, positives, len(queries))
    assert len(greedy) < 2 * wanted


def test_rows_without_surplus_are_in_the_epoch_once():
    rows, queries = 64 * 16, 16
    positives = np.arange(rows)
    positives[:100] = 0  # more than a window has batches
    sampler = BatchSampler(rows, queries, 1, keys=keys_of(np.arange(rows), positives), unique=True)
    seen = np.bincount(epoch_of(sampler, 0).ravel(), minlength=rows)
    assert (seen[100:] >= 1).all()
    assert 1 <= seen[:100].sum() <= 64
    assert seen.sum() == rows
    assert (seen == 2).sum() >= 36  # rows in the places of the surplus
    others = np.bincount(epoch_of(sampler, 1).ravel(), minlength=rows)
    assert (others[:100] != seen[:100]).any()


def test_unique_batch_that_cannot_be_filled_raises():
    positives = np.arange(100) % 7
    sampler = BatchSampler(100, 8, 0, keys=keys_of(np.arange(100), positives), unique=True)
    with pytest.raises(TrainingError, match=r"batch.unique leaves 7 rows for a batch of batch.queries 8"):
        sampler.rows_of(0)
    with pytest.raises(ValueError, match="unique batches need the keys of rows"):
        BatchSampler(100, 8, 0, unique=True)


def share_with_twin(sampler: BatchSampler, positives: np.ndarray) -> float:
    batches = positives[epoch_of(sampler, 0)]
    return float(np.mean([(batch[:, None] == batch).sum(axis=1) > 1 for batch in batches]))


def test_groups_of_length_have_no_more_twins_than_random_batches():
    rows, queries = 128 * WINDOW * 2, 128
    positives = np.random.default_rng(0).integers(0, rows // 5, rows)
    lengths = (positives % 97 + 3).astype(np.int32)
    keys = keys_of(np.arange(rows), positives)
    random, sorted_only = BatchSampler(rows, queries, 0), BatchSampler(rows, queries, 0, lengths)
    spread = BatchSampler(rows, queries, 0, lengths, keys=keys)
    assert share_with_twin(sorted_only, positives) > 4 * share_with_twin(random, positives)
    assert share_with_twin(spread, positives) <= share_with_twin(random, positives) / 2
    batches = epoch_of(spread, 0)
    assert sum(lengths[batch].max() * queries for batch in batches) < 1.15 * lengths[batches].sum()
    assert len(np.unique(batches)) == rows
