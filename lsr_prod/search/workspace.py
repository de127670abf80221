"""The working memory of one thread."""

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Workspace"]

_of_thread = threading.local()


@dataclass(slots=True)
class Workspace:
    """Arrays that the kernels fill; they grow to what the largest shard and query so far needed.

    Attributes:
        scores: float32 [places], zeros between queries; one for every value of a block-local id, so that a damaged id
            cannot leave the array.
        score_bits: the same memory as int32.
        counts: uint16 [places], zeros between queries.
        slots: int32 [V], zeros between queries.
        bounds: float32 [blocks], and the three after it.
        hits: uint16.
        heads: int32.
        order: int32.
        entry_next: int32 [entries], and the three after it.
        entry_start: int64.
        entry_term: uint16.
        entry_count: int32.
    """

    scores: npt.NDArray[np.float32]
    score_bits: npt.NDArray[np.int32]
    counts: npt.NDArray[np.uint16]
    slots: npt.NDArray[np.int32]
    bounds: npt.NDArray[np.float32]
    hits: npt.NDArray[np.uint16]
    heads: npt.NDArray[np.int32]
    order: npt.NDArray[np.int32]
    entry_next: npt.NDArray[np.int32]
    entry_start: npt.NDArray[np.int64]
    entry_term: npt.NDArray[np.uint16]
    entry_count: npt.NDArray[np.int32]

    @classmethod
    def of_thread(cls) -> "Workspace":
        """The workspace of the calling thread."""
        memory: Workspace | None = getattr(_of_thread, "memory", None)
        if memory is None:
            memory = _of_thread.memory = cls.allocate()
        return memory

    @classmethod
    def allocate(cls) -> "Workspace":
        """Memory for a small shard; ``fit`` makes it larger."""
        scores = np.zeros(1 << 8, np.float32)
        ints = [np.empty(0, np.int32) for _ in range(4)]
        return cls(
            scores,
            scores.view(np.int32),
            np.zeros(1 << 8, np.uint16),
            np.zeros(0, np.int32),
            np.empty(0, np.float32),
            np.empty(0, np.uint16),
            ints[0],
            ints[1],
            ints[2],
            np.empty(0, np.int64),
            np.empty(0, np.uint16),
            ints[3],
        )

    def fit(self, *, places: int, blocks: int, entries: int) -> "Blocks":
        """Grow where needed; returns the arrays of ``blocks`` blocks.

        Args:
            places: values of a block-local id.
            blocks: of the shard.
            entries: runs of the query's terms.
        """
        if len(self.scores) < places:
            self.scores, self.counts = np.zeros(places, np.float32), np.zeros(places, np.uint16)
            self.score_bits = self.scores.view(np.int32)
        if len(self.bounds) < blocks:
            self.bounds, self.hits = np.empty(blocks, np.float32), np.empty(blocks, np.uint16)
            self.heads, self.order = np.empty(blocks, np.int32), np.empty(blocks, np.int32)
        if len(self.entry_next) < entries:
            size = entries + entries // 2
            self.entry_next, self.entry_start = np.empty(size, np.int32), np.empty(size, np.int64)
            self.entry_term, self.entry_count = np.empty(size, np.uint16), np.empty(size, np.int32)
        return Blocks(self.bounds[:blocks], self.hits[:blocks], self.heads[:blocks], self.order[:blocks])

    def term_slots(self, vocabulary_size: int) -> npt.NDArray[np.int32]:
        """int32 [V], zeros; whoever writes to it puts the zeros back."""
        if len(self.slots) != vocabulary_size:
            self.slots = np.zeros(vocabulary_size, np.int32)
        return self.slots

    @property
    def entries(self) -> tuple[Any, Any, Any, Any]:
        """The arrays of entries, as the kernels take them."""
        return self.entry_next, self.entry_start, self.entry_term, self.entry_count


@dataclass(frozen=True, slots=True)
class Blocks:
    """The arrays of a shard's blocks; see ``Workspace``."""

    bounds: npt.NDArray[np.float32]
    hits: npt.NDArray[np.uint16]
    heads: npt.NDArray[np.int32]
    order: npt.NDArray[np.int32]
