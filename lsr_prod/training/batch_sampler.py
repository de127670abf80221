"""Batch sampler: the rows of a step as a pure function of seed and step, in constant memory.

The rows of an epoch are permuted by a keyed bijection: a Feistel network over the bits of a row number, with cycle
walking (Black and Rogaway, CT-RSA 2002). The permutation is computed on demand and never stored.
"""

from collections.abc import Callable

import numpy as np

from lsr_prod.errors import ConfigError, TrainingError
from lsr_prod.training.process_group import Group
from lsr_prod.training.twins import Numbers, draw, repeated, rows_apart, spread_twins

WINDOW = 64
"""Batches whose rows are arranged together: sorted by length, twins in different batches."""

KeysOfRows = Callable[[Numbers], tuple[Numbers, Numbers]]
"""Numbers of rows, int64 [n] -> keys of their queries and of their positives, int64 [n] each."""

_ROUNDS = 8
_FEWEST_BITS = 4  # more bits would mean more values outside the range, and slow down tiny sets
_ORDER, _BATCHES, _TWINS, _FILL = 1, 2, 4, 5  # purpose of random numbers; 3 are negatives
_TRIED, _MOST_TRIED = 64, 1 << 20  # rows that are tried first per free place of a batch; at once


def permuted(places: Numbers, count: int, key: int) -> Numbers:
    """Return the images of positions under a pseudo-random permutation of 0..count-1: int64 [n]."""
    bits = max(_FEWEST_BITS, (count - 1).bit_length())
    low = bits // 2
    values = _shuffled_bits(places, bits - low, low, key)
    outside = np.flatnonzero(values >= count)
    while len(outside):  # the cycle of a value in range returns into the range
        values[outside] = _shuffled_bits(values[outside], bits - low, low, key)
        outside = outside[values[outside] >= count]
    return values


def _shuffled_bits(values: Numbers, high: int, low: int, key: int) -> Numbers:
    """Apply a bijection of ``high + low`` bits: each half in turn is XORed with a hash of the other one."""
    left, right = values >> low, values & ((1 << low) - 1)
    for turn in range(0, _ROUNDS, 2):
        left = left ^ _hash(right, key, turn, high)
        right = right ^ _hash(left, key, turn + 1, low)
    return (left << low) | right


def _hash(values: Numbers, key: int, turn: int, bits: int) -> Numbers:
    return (draw(key, turn, values) >> np.uint64(64 - bits)).astype(np.int64)


class BatchSampler:
    """Sampler of the rows of every step.

    An epoch contains each row once, except a remainder that does not fill a batch, which differs between epochs. With
    lengths, the rows of ``WINDOW`` consecutive batches are sorted by length, cut into batches, and these are shuffled:
    the texts of a batch have similar lengths, but remain random. With keys, rows with equal positives, which have
    similar lengths, are moved to different batches before.

    Unique batches have no rows with an equal query or an equal positive. Of such rows that outnumber the batches of
    their window, the surplus is left out of the epoch, and random rows of the whole set take their places, of similar
    length if there are lengths; these occur in the epoch once more.
    """

    def __init__(
        self,
        rows: int,
        queries: int,
        seed: int,
        lengths: np.typing.NDArray[np.int32] | None = None,
        *,
        keys: KeysOfRows | None = None,
        unique: bool = False,
    ) -> None:
        if rows < queries:
            problem = f"{queries} is more than the {rows} valid rows"
            raise ConfigError("batch.queries", problem, f"give {rows} or less, or more data")
        if lengths is not None and lengths.shape != (rows,):
            raise ValueError(f"{lengths.shape} lengths for {rows} rows")
        self.rows, self.queries, self.steps_per_epoch = rows, queries, rows // queries
        if unique and keys is None:
            raise ValueError("unique batches need the keys of rows")
        self._seed, self._lengths, self._keys, self._unique = seed, lengths, keys, unique
        self._window: tuple[int, int, Numbers] | None = None  # the last window

    def rows_of(self, step: int) -> Numbers:
        """Return the rows of a step, int64 [queries]; with lengths, the shortest first."""
        epoch, batch = divmod(step, self.steps_per_epoch)
        if self._lengths is None and not self._unique:
            return self._places(epoch, batch * self.queries, (batch + 1) * self.queries)
        window, place = divmod(batch, WINDOW)
        if self._window is None or self._window[:2] != (epoch, window):
            self._window = (epoch, window, self._arranged_window(epoch, window))
        rows: Numbers = self._window[2][place]
        return rows

    def worker_rows(self, step: int, parts: int, group: Group) -> list[Numbers]:
        """Return this worker's rows of each part of a step.

        The rows of a batch are sorted by length: dealt out in turns, every part and worker gets long ones.
        """
        rows = self.rows_of(step)
        return [rows[part::parts][group.rank :: group.world] for part in range(parts)]

    def _arranged_window(self, epoch: int, window: int) -> Numbers:
        """Return the shuffled batches of a window, int64 [batches, queries]."""
        first, last = window * WINDOW, min((window + 1) * WINDOW, self.steps_per_epoch)
        rows = self._places(epoch, first * self.queries, last * self.queries).reshape(-1, self.queries)
        order = np.arange(rows.size)
        if self._lengths is not None:
            order = np.argsort(self._lengths[rows.ravel()], kind="stable")
        batches = rows.ravel()[order].reshape(rows.shape)
        if self._keys is not None:
            queries, positives = (keys.reshape(rows.shape) for keys in self._keys(rows.ravel()))
            batches = self._without_twins(rows, order, queries, positives, (epoch, first))
        keys = draw(self._seed, _BATCHES, epoch, window, np.arange(len(batches)))
        return batches[np.argsort(keys, kind="stable")]

    def _without_twins(
        self, rows: Numbers, order: Numbers, queries: Numbers, positives: Numbers, name: tuple[int, int]
    ) -> Numbers:
        """Return the rows of a window with twins in different batches."""
        # Moves make batches of mixed lengths. Unless batches are unique, they end well below the twins of random order.
        kinds, enough = (
            ([queries, positives], 0) if self._unique else ([positives], int(repeated(positives).sum()) // 2)
        )
        sorted_kinds = [keys.ravel()[order].reshape(rows.shape) for keys in kinds]
        order = order[spread_twins(sorted_kinds, self._seed, _TWINS, *name, enough=enough)]
        batches = rows.ravel()[order]
        if self._unique:
            self._fill_up(batches, queries.ravel()[order], positives.ravel()[order], name)
        if self._lengths is None:
            return batches
        return np.take_along_axis(batches, np.argsort(self._lengths[batches], axis=1, kind="stable"), axis=1)

    def _fill_up(self, batches: Numbers, queries: Numbers, positives: Numbers, name: tuple[int, int]) -> None:
        """Replace the rows that have a twin in their batch; the arguments are those of ``_without_twins``, spread."""
        surplus, (epoch, first) = repeated(queries, positives), name
        for number in np.flatnonzero(surplus.any(axis=1)).tolist():
            kept = ~surplus[number]
            left = batches[number, kept], queries[number, kept], positives[number, kept]
            batches[number, ~kept] = self._other_rows(*left, (epoch, first + number))

    def _other_rows(self, batch: Numbers, queries: Numbers, positives: Numbers, name: tuple[int, int]) -> Numbers:
        """Return random rows that fill up a batch, and are no twins of its rows and of each other."""
        assert self._keys is not None
        missing, found, start = self.queries - len(batch), [np.empty(0, np.int64)], 0
        order, size = int(draw(self._seed, _FILL, *name).view(np.int64)), _TRIED * missing
        while missing and start < self.rows:
            end = min(start + size, self.rows)
            rows = permuted(np.arange(start, end, dtype=np.int64), self.rows, order)
            if self._lengths is not None:
                distance = np.abs(self._lengths[rows] - np.median(self._lengths[batch]))
                rows = rows[np.argsort(distance, kind="stable")]
            more_queries, more_positives = self._keys(rows)
            chosen = rows_apart(queries, positives, more_queries, more_positives, missing)
            found.append(rows[chosen])
            queries = np.append(queries, more_queries[chosen])
            positives = np.append(positives, more_positives[chosen])
            missing, start, size = missing - len(chosen), end, min(2 * size, _MOST_TRIED)
        if missing:
            raise TrainingError(
                f"batch.unique leaves {self.queries - missing} rows for a batch of batch.queries {self.queries}: all "
                "other rows have a query or positive of these; lower batch.queries or set batch.unique to false"
            )
        return np.concatenate(found)

    def _places(self, epoch: int, first: int, last: int) -> Numbers:
        key = int(draw(self._seed, _ORDER, epoch).view(np.int64))
        return permuted(np.arange(first, last, dtype=np.int64), self.rows, key)
