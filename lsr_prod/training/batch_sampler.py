"""Batch sampler: the rows of a step as a pure function of seed and step, in constant memory.

The rows of an epoch are permuted by a keyed bijection: a Feistel network over the bits of a row number, with cycle
walking (Black and Rogaway, CT-RSA 2002). The permutation is computed on demand and never stored.
"""

import numpy as np
import numpy.typing as npt

from lsr_prod.errors import ConfigError
from lsr_prod.training.parallel.process_group import Group
from lsr_prod.training.rng import draw

__all__ = ["WINDOW", "BatchSampler", "permuted"]

WINDOW = 64
"""Batches whose rows are sorted by length together."""

_ROUNDS = 8
_FEWEST_BITS = 4  # more bits would mean more values outside the range, and slow down tiny sets
_ORDER, _BATCHES = 1, 2  # purpose of random numbers


def permuted(places: npt.NDArray[np.int64], count: int, key: int) -> npt.NDArray[np.int64]:
    """Return the images of positions under a pseudo-random permutation of 0..count-1.

    Args:
        places: int64 [n], each in 0..count-1.
        count: size of the permutation, at most 2**62.
        key: key of the permutation; 64 bits, signed.

    Returns:
        int64 [n].
    """
    bits = max(_FEWEST_BITS, (count - 1).bit_length())
    low = bits // 2
    values = _shuffled_bits(places, bits - low, low, key)
    outside = np.flatnonzero(values >= count)
    while len(outside):  # the cycle of a value in range returns into the range
        values[outside] = _shuffled_bits(values[outside], bits - low, low, key)
        outside = outside[values[outside] >= count]
    return values


def _shuffled_bits(values: npt.NDArray[np.int64], high: int, low: int, key: int) -> npt.NDArray[np.int64]:
    """Apply a bijection of ``high + low`` bits: each half in turn is XORed with a hash of the other one."""
    left, right = values >> low, values & ((1 << low) - 1)
    for turn in range(0, _ROUNDS, 2):
        left = left ^ _hash(right, key, turn, high)
        right = right ^ _hash(left, key, turn + 1, low)
    return (left << low) | right


def _hash(values: npt.NDArray[np.int64], key: int, turn: int, bits: int) -> npt.NDArray[np.int64]:
    return (draw(key, turn, values) >> np.uint64(64 - bits)).astype(np.int64)


class BatchSampler:
    """Sampler of the rows of every step.

    An epoch contains each row once, except a remainder that does not fill a batch, which differs between epochs. With
    lengths, the rows of ``WINDOW`` consecutive batches are sorted by length, cut into batches, and these are shuffled:
    the texts of a batch have similar lengths, but remain random.

    Attributes:
        rows: rows of the training set.
        queries: rows per step.
        steps_per_epoch: steps per epoch.
    """

    def __init__(self, rows: int, queries: int, seed: int, lengths: npt.NDArray[np.int32] | None = None) -> None:
        """Create a sampler.

        Args:
            rows: rows of the training set.
            queries: rows per step, over all workers.
            seed: seed of the order.
            lengths: int32 [rows], tokens per row; None: batches are not grouped by length.

        Raises:
            ConfigError: fewer rows than a step needs.
        """
        if rows < queries:
            raise ConfigError(
                "batch.queries", f"{queries} is more than the {rows} valid rows", f"give {rows} or less, or more data"
            )
        if lengths is not None and lengths.shape != (rows,):
            raise ValueError(f"{lengths.shape} lengths for {rows} rows")
        self.rows, self.queries, self.steps_per_epoch = rows, queries, rows // queries
        self._seed, self._lengths = seed, lengths
        self._window: tuple[int, int, npt.NDArray[np.int64]] | None = None  # the last window

    def rows_of(self, step: int) -> npt.NDArray[np.int64]:
        """Return the rows of a step, int64 [queries]; with lengths, the shortest first."""
        epoch, batch = divmod(step, self.steps_per_epoch)
        if self._lengths is None:
            return self._places(epoch, batch * self.queries, (batch + 1) * self.queries)
        window, place = divmod(batch, WINDOW)
        if self._window is None or self._window[:2] != (epoch, window):
            self._window = (epoch, window, self._sorted_window(epoch, window, self._lengths))
        rows: npt.NDArray[np.int64] = self._window[2][place]
        return rows

    def worker_rows(self, step: int, parts: int, group: Group) -> list[npt.NDArray[np.int64]]:
        """Return this worker's rows of each part of a step.

        The rows of a batch are sorted by length: dealt out in turns, every part and worker gets long ones.
        """
        rows = self.rows_of(step)
        return [rows[part::parts][group.rank :: group.world] for part in range(parts)]

    def _sorted_window(self, epoch: int, window: int, lengths: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        """Return the shuffled batches of a window, int64 [batches, queries]."""
        first, last = window * WINDOW, min((window + 1) * WINDOW, self.steps_per_epoch)
        rows = self._places(epoch, first * self.queries, last * self.queries)
        batches = rows[np.argsort(lengths[rows], kind="stable")].reshape(-1, self.queries)
        keys = draw(self._seed, _BATCHES, epoch, window, np.arange(len(batches)))
        return batches[np.argsort(keys, kind="stable")]

    def _places(self, epoch: int, first: int, last: int) -> npt.NDArray[np.int64]:
        key = int(draw(self._seed, _ORDER, epoch).view(np.int64))
        return permuted(np.arange(first, last, dtype=np.int64), self.rows, key)
