"""Masks of filters over the documents of a shard, and the cache that bounds their memory."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Allowed = np.typing.NDArray[np.uint8]
MaskKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Mask:
    """A set of documents of one shard."""

    allowed: Allowed  # uint8 [N], read-only, 1 for those in the set
    ordinals: np.typing.NDArray[np.int64] | None  # int64 [n], rising, if they are few; None: they are not
    # offsets, terms and impacts of those documents, if they are few; see ``ForwardCopy.gather``
    vectors: tuple[np.typing.NDArray[Any], ...] = ()

    @classmethod
    def of(cls, allowed: Allowed, few: float) -> "Mask":
        """Return the set of documents for which ``allowed`` is 1; ``allowed`` becomes read-only.

        Ordinals of a large set would take eight times the memory of ``allowed``.
        """
        allowed.flags.writeable = False
        return cls(allowed, np.flatnonzero(allowed) if np.count_nonzero(allowed) < few else None)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        listed = 0 if self.ordinals is None else self.ordinals.nbytes
        return self.allowed.nbytes + listed + sum(array.nbytes for array in self.vectors)


class MaskCache:
    """LRU cache of the masks of all shards of one open version. Safe to share between threads.

    If several threads need the same mask at once, one computes it and the others wait.
    """

    def __init__(self, max_bytes: int) -> None:
        self.hits = self.misses = self.bytes = 0
        self._max_bytes = max_bytes
        self._masks: OrderedDict[MaskKey, Mask] = OrderedDict()
        self._computing: dict[MaskKey, threading.Lock] = {}
        self._lock = threading.Lock()

    def get(self, key: MaskKey, compute: Callable[[], Mask]) -> Mask:
        """Return the mask of ``key``, computed if it is not cached. A mask larger than ``max_bytes`` is not cached."""
        mask = self._find(key)
        if mask is not None:
            return mask
        with self._lock:
            computing = self._computing.setdefault(key, threading.Lock())
        with computing:
            mask = self._find(key)
            if mask is not None:
                return mask
            try:
                mask = compute()
                self._keep(key, mask)
            finally:
                with self._lock:
                    self._computing.pop(key, None)
        return mask

    def _find(self, key: MaskKey) -> Mask | None:
        with self._lock:
            mask = self._masks.get(key)
            if mask is not None:
                self._masks.move_to_end(key)
                self.hits += 1
            return mask

    def _keep(self, key: MaskKey, mask: Mask) -> None:
        with self._lock:
            self.misses += 1
            if mask.nbytes > self._max_bytes or key in self._masks:
                return
            self._masks[key] = mask
            self.bytes += mask.nbytes
            while self.bytes > self._max_bytes:
                self.bytes -= self._masks.popitem(last=False)[1].nbytes
