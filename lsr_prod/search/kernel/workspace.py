"""The working memory of one thread."""

import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from lsr_prod.search.kernel.arrays import ENTRY, PROGRESS_PLACES, ScanMemory

__all__ = ["Workspace"]

_of_thread = threading.local()


class Workspace:
    """Arrays that the kernels write; they grow to the size that the largest shard and query so far needed.

    ``scores`` and ``counts`` have one place for every value of a block-local id, so a damaged id cannot leave them.

    Attributes:
        memory: arrays of the matching kernel.
        arrays: the same as a plain tuple.
        progress: int64 [PROGRESS_PLACES].
        slots: int32 [V], zeros between queries.
    """

    def __init__(self) -> None:
        """Allocate memory for a small shard."""
        self.progress = np.zeros(PROGRESS_PLACES, np.int64)
        self.slots = np.zeros(0, np.int32)
        self._allocate(places=1 << 8, blocks=1 << 8, entries=1 << 12, k=16)

    def _allocate(self, *, places: int, blocks: int, entries: int, k: int) -> None:
        scores = np.zeros(places, np.float32)
        self.memory = ScanMemory(
            bounds=np.empty(blocks, np.float32),
            terms_present=np.empty(blocks, np.uint16),
            first_entries=np.empty(blocks, np.int32),
            order=np.empty(blocks, np.int32),
            entries=np.empty(entries, ENTRY),
            scores=scores,
            score_bits=scores.view(np.int32),
            counts=np.zeros(places, np.uint16),
            top_scores=np.empty(k, np.float32),
            top_documents=np.empty(k, np.int64),
            top_counts=np.empty(k, np.uint16),
        )
        self.arrays: tuple[Any, ...] = tuple(self.memory)

    @classmethod
    def of_thread(cls) -> "Workspace":
        """Return the workspace of the calling thread."""
        workspace: Workspace | None = getattr(_of_thread, "workspace", None)
        if workspace is None:
            workspace = _of_thread.workspace = cls()
        return workspace

    def fit(self, *, places: int = 0, blocks: int = 0, entries: int = 0, k: int = 0) -> None:
        """Grow where needed; entries by half as much again.

        Args:
            places: values of a block-local id.
            blocks: blocks of the shard.
            entries: runs of the query's terms.
            k: hits.
        """
        memory = self.memory
        if (
            len(memory.scores) < places
            or len(memory.bounds) < blocks
            or len(memory.entries) < entries
            or len(memory.top_scores) < k
        ):
            self._allocate(
                places=max(places, len(memory.scores)),
                blocks=max(blocks, len(memory.bounds)),
                entries=max(entries + entries // 2, len(memory.entries)),
                k=max(k, len(memory.top_scores)),
            )

    def term_slots(self, vocabulary_size: int) -> npt.NDArray[np.int32]:
        """Return int32 [V], zeros; the caller restores the zeros."""
        if len(self.slots) != vocabulary_size:
            self.slots = np.zeros(vocabulary_size, np.int32)
        return self.slots
