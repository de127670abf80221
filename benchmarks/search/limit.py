"""What this machine's memory gives one thread: the floor under the time of a query that reads so many bytes."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np

__all__ = ["Limits", "measure_limits"]

CACHED = 1 << 14  # sums of 16 bits that stay in the first-level cache


@dataclass(frozen=True, slots=True)
class Limits:
    """One thread's best.

    Attributes:
        stream_gb_s: reading memory in order, 1e9 bytes a second.
        gather_ns: one read at a random place of an array far larger than the caches.
        scatter_ns: adding one product of 16 bits to a random place of 16,384 cached sums, as a posting does.
    """

    stream_gb_s: float
    gather_ns: float
    scatter_ns: float

    def stream_us(self, count: float) -> float:
        """Microseconds to read ``count`` bytes in order."""
        return count / self.stream_gb_s / 1e3


def measure_limits(megabytes: int = 512) -> Limits:
    """Best of five of each probe over an array of that size."""
    generator = np.random.default_rng(1)
    words = generator.integers(0, 1 << 62, megabytes << 17)
    places = generator.integers(0, len(words), 1 << 21)
    ids = generator.integers(0, CACHED, 1 << 20).astype(np.uint16)
    impacts = generator.integers(1, 256, 1 << 20).astype(np.uint8)
    sums = np.zeros(CACHED, np.uint16)
    stream = _best(lambda: _read_all(words))
    gather = _best(lambda: _read_places(words, places))
    scatter = _best(lambda: _add_postings(ids, impacts, np.uint16(128), sums))
    return Limits(words.nbytes / stream / 1e9, gather / len(places) * 1e9, scatter / len(ids) * 1e9)


def _best(probe: Callable[[], Any], runs: int = 5) -> float:
    """Seconds of the fastest run; the first compiles."""
    seconds = []
    for _ in range(runs + 1):
        start = time.perf_counter()
        probe()
        seconds.append(time.perf_counter() - start)
    return min(seconds[1:])


@numba.njit(nogil=True)
def _read_all(words: Any) -> int:
    total = 0
    for i in range(len(words)):
        total ^= words[i]
    return total


@numba.njit(nogil=True)
def _read_places(words: Any, places: Any) -> int:
    total = 0
    for i in range(len(places)):
        total ^= words[places[i]]
    return total


@numba.njit(nogil=True)
def _add_postings(ids: Any, impacts: Any, weight: Any, sums: Any) -> None:
    for i in range(len(ids)):
        sums[ids[i]] += (weight * impacts[i]) >> 8
