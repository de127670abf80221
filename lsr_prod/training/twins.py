"""Twins: rows with an equal query or an equal positive, which are not negatives of each other in one batch.

Random numbers as pure functions of their purpose and place in a run.

No generator has a state to save: any step can be repeated, and a resumed run draws the same numbers.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import product

import numpy as np
import torch

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def draw(*names: int | np.typing.NDArray[np.int64]) -> np.typing.NDArray[np.uint64]:
    """Return a pseudo-random 64-bit number for every combination of names, in their common shape.

    Each name is mixed into the state by the finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
    """
    state = np.zeros((), np.uint64)
    with np.errstate(over="ignore"):  # arithmetic is modulo 2**64
        for name in names:
            state = _mixed((state ^ np.asarray(name, np.int64).view(np.uint64)) + _GOLDEN)
    return np.asarray(state)


def _mixed(value: np.typing.NDArray[np.uint64]) -> np.typing.NDArray[np.uint64]:
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def seed_value(*position: int) -> int:
    """Return a 63-bit seed for a position in a run, for example (seed, step, worker, part, chunk)."""
    return int(np.random.SeedSequence(position).generate_state(1, np.uint64)[0]) >> 1


def seed_torch(*position: int) -> None:
    """Seed all of torch's generators in this process with ``seed_value(*position)``."""
    torch.manual_seed(seed_value(*position))


Numbers = np.typing.NDArray[np.int64]
_REACHES = (2, 4, 8, 16, 32, 64)  # batches
_EDGES = (32, 16, 8, 4)  # the edge of a batch is a 32nd of it, then a 16th, an 8th, a quarter


def repeated(*kinds: Numbers) -> np.typing.NDArray[np.bool_]:
    """Return which rows have a key of an earlier row of their batch: bool [batches, n]."""
    return _any(_repeated_keys(keys) for keys in kinds)


def spread_twins(kinds: Sequence[Numbers], *name: int, enough: int = 0) -> Numbers:
    """Exchange rows between batches so that twins are in different batches; return the former places, [batches, n].

    A row moves to a near batch without a twin of it, and a row near the edge of that batch takes its place: if the rows
    are sorted by length, both have similar lengths. Twins stay together where there are more of them than batches.
    """
    batches, width = kinds[0].shape
    order = np.arange(batches * width)
    moving = np.flatnonzero(repeated(*kinds))
    groups = [_Groups(keys) for keys in kinds] if len(moving) else []
    for turn, edge, distance, sign in _moves(batches):
        moving = moving[_any(group.is_repeated(order[moving], moving // width) for group in groups)]
        if len(moving) <= enough:
            break
        targets = moving // width + sign * distance
        inside = (targets >= 0) & (targets < batches)
        near = draw(*name, turn, moving[inside]) % np.uint64(-(-width // edge))
        start = near.astype(np.int64) if sign > 0 else width - 1 - near.astype(np.int64)
        _exchange(groups, order, moving[inside], targets[inside] * width + start, width)
    return order.reshape(batches, width)


def rows_apart(
    queries: Numbers, positives: Numbers, more_queries: Numbers, more_positives: Numbers, limit: int
) -> Numbers:
    """Return the numbers of at most ``limit`` further rows that are twins neither of a batch nor of each other."""
    chosen = np.empty(0, np.int64)
    left = np.arange(len(more_queries))
    while True:
        taken_queries = np.append(queries, more_queries[chosen])
        taken_positives = np.append(positives, more_positives[chosen])
        left = left[~(np.isin(more_queries[left], taken_queries) | np.isin(more_positives[left], taken_positives))]
        if not len(left) or len(chosen) == limit:
            return chosen
        first = left[~repeated(more_queries[None, left], more_positives[None, left])[0]]
        chosen = np.append(chosen, first[: limit - len(chosen)])


def _moves(batches: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield the number, edge, distance and direction of each move, from near batches to far ones."""
    moves = (
        (edge, distance, sign)
        for reach, edge in product(_REACHES, _EDGES)
        for distance in range(1, min(reach, batches - 1) + 1)
        for sign in (1, -1)
    )
    for number, move in enumerate(moves):
        yield number, *move


class _Groups:
    """Groups of rows with equal keys, and their rows in each batch."""

    def __init__(self, keys: Numbers) -> None:
        batches, width = keys.shape
        _, groups, sizes = np.unique(keys, return_inverse=True, return_counts=True)
        several = np.cumsum(sizes > 1) - 1
        self._none = int(np.count_nonzero(sizes > 1))  # the group of rows without a twin, whose counts stay 0
        self._of_row: Numbers = np.where(sizes > 1, several, self._none)[groups.ravel()]
        places = self._of_row * batches + np.arange(keys.size) // width
        self._counts = np.bincount(places, minlength=(self._none + 1) * batches).reshape(-1, batches).astype(np.int32)
        self._counts[self._none] = 0

    def is_repeated(self, rows: Numbers, batches: Numbers) -> np.typing.NDArray[np.bool_]:
        """Return whether rows have a twin in the batch that they are in."""
        found: np.typing.NDArray[np.bool_] = self._counts[self._of_row[rows], batches] > 1
        return found

    def is_free(self, rows: Numbers, batches: Numbers) -> np.typing.NDArray[np.bool_]:
        """Return whether rows have no twin in another batch, and none among earlier ones of ``rows`` that enters it."""
        groups = self._of_row[rows]
        places = groups * self._counts.shape[1] + batches
        first = np.zeros(len(rows), np.bool_)
        first[np.unique(places, return_index=True)[1]] = True
        found: np.typing.NDArray[np.bool_] = (groups == self._none) | (first & (self._counts[groups, batches] == 0))
        return found

    def move(self, rows: Numbers, before: Numbers, after: Numbers) -> None:
        """Move rows from one batch to another."""
        groups = self._of_row[rows]
        np.subtract.at(self._counts, (groups, before), 1)
        np.add.at(self._counts, (groups, after), 1)
        self._counts[self._none] = 0


def _exchange(groups: list[_Groups], order: Numbers, places: Numbers, partners: Numbers, width: int) -> None:
    """Exchange the rows at two lists of places where no twin of them is in their new batches."""
    chosen = np.zeros(len(places), np.bool_)
    chosen[np.unique(partners, return_index=True)[1]] = True  # a place takes part in one exchange
    chosen &= ~np.isin(partners, places)
    places, partners = places[chosen], partners[chosen]
    rows = np.concatenate([order[places], order[partners]])
    before = np.concatenate([places, partners]) // width
    after = np.concatenate([partners, places]) // width
    refused = _any(~group.is_free(rows, after) for group in groups).reshape(2, -1).any(axis=0)
    kept = np.tile(~refused, 2)
    for group in groups:
        group.move(rows[kept], before[kept], after[kept])
    places, partners = places[~refused], partners[~refused]
    order[places], order[partners] = order[partners], order[places]


def _any(conditions: Iterable[np.typing.NDArray[np.bool_]]) -> np.typing.NDArray[np.bool_]:
    found: np.typing.NDArray[np.bool_] = np.logical_or.reduce(list(conditions))
    return found


def _repeated_keys(keys: Numbers) -> np.typing.NDArray[np.bool_]:
    order = np.argsort(keys, axis=1, kind="stable")
    ordered = np.take_along_axis(keys, order, axis=1)
    found = np.zeros(keys.shape, np.bool_)
    np.put_along_axis(found, order[:, 1:], ordered[:, 1:] == ordered[:, :-1], axis=1)
    return found
