import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsr_prod.errors import ConfigError
from lsr_prod.training.batch_sampler import WINDOW, BatchSampler, permuted
from tests.quick import first_quick


@given(st.integers(1, 3000), st.integers(-(2**63), 2**63 - 1))
@settings(max_examples=40)
def test_permuted_is_bijection(count: int, key: int):
    places = permuted(np.arange(count), count, key)
    assert sorted(places.tolist()) == list(range(count))


@given(st.integers(1, 2**40), st.integers(0, 2**40), st.data())
def test_permuted_position_does_not_depend_on_other_positions(count: int, key: int, data: st.DataObject):
    some = np.array(data.draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=20)))
    together = permuted(some, count, key)
    assert together.tolist() == [int(permuted(np.array([place]), count, key)[0]) for place in some]
    assert ((together >= 0) & (together < count)).all()


@pytest.mark.long
@given(
    rows=st.integers(2, 600),
    queries=st.integers(2, 40),
    seed=st.integers(0, 2**31),
    epoch=st.integers(0, 5),
    grouped=st.booleans(),
)
@settings(max_examples=40)
def test_epoch_contains_rows_at_most_once_without_remainder(
    rows: int, queries: int, seed: int, epoch: int, grouped: bool
):
    if rows < queries:
        rows = queries
    lengths = np.random.default_rng(seed).integers(1, 99, rows, dtype=np.int32) if grouped else None
    order = BatchSampler(rows, queries, seed, lengths)
    assert order.steps_per_epoch == rows // queries
    steps = range(epoch * order.steps_per_epoch, (epoch + 1) * order.steps_per_epoch)
    seen = np.concatenate([order.rows_of(step) for step in steps])
    assert seen.shape == (rows // queries * queries,)
    assert len(np.unique(seen)) == len(seen)
    assert seen.min() >= 0
    assert seen.max() < rows
    # A resumed run asks for any step first, and gets the same rows.
    for step in (*steps[:2], *steps[-2:]):
        again = BatchSampler(rows, queries, seed, lengths)
        np.testing.assert_array_equal(again.rows_of(step), order.rows_of(step))


@given(st.integers(1, 17), st.integers(0, 200))
@settings(max_examples=20)
def test_shares_of_workers_make_up_batch(workers: int, step: int):
    lengths = np.arange(1000, dtype=np.int32) % 37
    orders = [BatchSampler(1000, 64, 5, lengths) for _ in range(workers)]
    shares = [np.array_split(order.rows_of(step), workers)[rank] for rank, order in enumerate(orders)]
    np.testing.assert_array_equal(np.concatenate(shares), BatchSampler(1000, 64, 5, lengths).rows_of(step))


@pytest.mark.long
def test_order_differs_by_epoch_and_seed():
    def epoch(seed: int, number: int) -> np.ndarray:
        order = BatchSampler(1003, 10, seed)
        return np.concatenate([order.rows_of(number * 100 + step) for step in range(100)])

    first, second, other = epoch(0, 0), epoch(0, 1), epoch(1, 0)
    assert (first == second).mean() < 0.02
    assert (first == other).mean() < 0.02
    left_out = [frozenset(range(1003)) - set(epoch(0, number).tolist()) for number in range(40)]
    assert all(len(rows) == 3 for rows in left_out)
    assert len(frozenset().union(*left_out)) > 80  # of 120 draws among 1003


@pytest.mark.parametrize("count", first_quick([1024, 6, 100, 1500]))
def test_rows_are_uniform_over_positions(count: int):
    # Chi-squared over (place, row) of the permutations of many keys, both put into a few classes.
    keys, classes = 1000 if count < 1000 else 300, 6
    group = np.arange(count) * classes // count
    table = np.zeros((classes, classes))
    for key in range(keys):
        np.add.at(table, (group, group[permuted(np.arange(count), count, key)]), 1)
    sizes = np.bincount(group)
    expected = keys * sizes[:, None] * sizes[None, :] / count
    chi = float(((table - expected) ** 2 / expected).sum())
    # A permutation draws without replacement, so chi is a little below its 25 degrees of freedom (or at them).
    assert chi < 25 + 6 * 50**0.5


@pytest.mark.long
def test_neighboring_rows_are_scattered():
    rows, queries = 2048, 64
    together = np.zeros(100)
    for epoch in range(100):
        places = np.empty(rows, np.int64)
        order = BatchSampler(rows, queries, 9)
        for step in range(order.steps_per_epoch):
            places[order.rows_of(epoch * order.steps_per_epoch + step)] = step
        together[epoch] = (places[1:] == places[:-1]).mean()  # neighbours of the file in one batch
    chance = (queries - 1) / (rows - 1)
    assert abs(together.mean() - chance) < 5 * together.std() / 100**0.5
    permutation = permuted(np.arange(100_000), 100_000, 3)
    assert abs(np.corrcoef(permutation[1:], permutation[:-1])[0, 1]) < 0.02
    assert abs(np.corrcoef(permutation, np.arange(100_000))[0, 1]) < 0.02


def test_batches_have_similar_lengths_in_random_order():
    rows, queries = 64 * WINDOW * 3, 64
    lengths = np.random.default_rng(0).geometric(0.02, rows).astype(np.int32)
    order, plain = BatchSampler(rows, queries, 1, lengths), BatchSampler(rows, queries, 1)
    batches = [lengths[order.rows_of(step)] for step in range(order.steps_per_epoch)]
    padded = sum(batch.max() * queries for batch in batches)
    unsorted = sum(lengths[plain.rows_of(step)].max() * queries for step in range(order.steps_per_epoch))
    assert padded < 1.15 * lengths.sum()
    assert unsorted > 3 * lengths.sum()
    means = np.array([batch.mean() for batch in batches])
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.3
    # A window has the same rows in either order.
    for window in range(3):
        steps = range(window * WINDOW, (window + 1) * WINDOW)
        rows_of_window = [np.sort(np.concatenate([one.rows_of(step) for step in steps])) for one in (order, plain)]
        np.testing.assert_array_equal(*rows_of_window)


def test_sampler_needs_constant_memory():
    tracemalloc.start()
    order = BatchSampler(700_000_000, 3072, 0)
    rows = order.rows_of(1_000_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(np.unique(rows)) == 3072
    assert rows.max() > 600_000_000
    assert peak < 5_000_000


def test_sampler_rejects_too_few_rows():
    with pytest.raises(ConfigError, match=r"batch.queries: 32 is more than the 31 valid rows; give 31 or less"):
        BatchSampler(31, 32, 0)
    with pytest.raises(ValueError, match="lengths"):
        BatchSampler(40, 32, 0, np.zeros(39, np.int32))
