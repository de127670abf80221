"""Postings on disk by ranges of a key, to turn lists by term into vectors by document, or the other way round."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

_TRIPLE = np.dtype([("key", "<i4"), ("other", "<i4"), ("value", "<i4")])
_HELD = 2_000_000  # triples in memory

Ints = npt.NDArray[np.int64]


class Inversion:
    """Collects triples (key, other, value) and returns those of a range of keys."""

    def __init__(self, folder: Path, keys: int, parts: int) -> None:
        self._folder, self._keys = folder, max(keys, 1)
        self.parts = max(1, min(parts, self._keys))
        self._held: list[npt.NDArray[np.void]] = []
        self._count = 0

    def add(self, key: npt.ArrayLike, other: npt.ArrayLike, value: npt.ArrayLike) -> None:
        """Add triples of int32: arrays of one length, or a number for all."""
        columns = np.broadcast_arrays(key, other, value)
        triples = np.empty(len(columns[0]), _TRIPLE)
        for name, column in zip(_TRIPLE.names or (), columns, strict=True):
            triples[name] = column
        self._held.append(triples)
        self._count += len(triples)
        if self._count >= _HELD:
            self._flush()

    def bounds(self, part: int) -> tuple[int, int]:
        """Return the range of keys of a part."""
        return part * self._keys // self.parts, (part + 1) * self._keys // self.parts

    def read(self, part: int) -> tuple[Ints, Ints, Ints]:
        """Return keys, others and values of a part by rising key; those of one key in the order in which they came."""
        self._flush()
        path = self._path(part)
        triples = np.fromfile(path, _TRIPLE) if path.exists() else np.zeros(0, _TRIPLE)
        triples = triples[np.argsort(triples["key"], kind="stable")]
        key, other, value = (triples[name].astype(np.int64) for name in ("key", "other", "value"))
        return key, other, value

    def _flush(self) -> None:
        if not self._count:
            return
        triples = np.concatenate(self._held)
        self._held, self._count = [], 0
        starts = np.array([self.bounds(part)[0] for part in range(self.parts)])
        part = np.searchsorted(starts, triples["key"], side="right") - 1
        order = np.argsort(part, kind="stable")
        sizes = np.bincount(part, minlength=self.parts)
        last = 0
        for number in np.flatnonzero(sizes).tolist():
            with self._path(number).open("ab") as file:
                file.write(triples[order[last : last + sizes[number]]].tobytes())
            last += int(sizes[number])

    def _path(self, part: int) -> Path:
        return self._folder / f"{part}.triples"
