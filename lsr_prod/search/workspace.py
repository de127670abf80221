"""The working memory of one thread."""

import threading

import numpy as np
import numpy.typing as npt

__all__ = ["Workspace"]

_of_thread = threading.local()


class Workspace:
    """Arrays that the kernels fill; they grow to what the largest shard and query so far needed.

    Attributes:
        scores: float32 [places], zeros between queries; one for every value of a block-local id, so that a damaged id
            cannot leave the array.
        score_bits: the same memory as int32.
        counts: uint16 [places], zeros between queries.
        slots: int32 [V], zeros between queries.
        bounds: float32 [blocks], and so are the three after it; see ``kernel.match_shard``.
        hits: uint16.
        heads: int32.
        order: int32.
        entries: ``kernel.ENTRY``, runs of the query's terms.
        top_scores: float32 [k], and so are the two after it.
        top_documents: int64.
        top_counts: uint16.
        progress: int64.
    """

    def __init__(self) -> None:
        """Memory for a small shard."""
        from lsr_prod.search.kernel import ENTRY, PROGRESS

        self.slots = np.zeros(0, np.int32)
        self.entries = np.empty(1 << 12, ENTRY)
        self.progress = np.zeros(PROGRESS, np.int64)
        self._make_places(1 << 8)
        self._make_blocks(1 << 8)
        self._make_top(16)

    def _make_places(self, places: int) -> None:
        self.scores, self.counts = np.zeros(places, np.float32), np.zeros(places, np.uint16)
        self.score_bits = self.scores.view(np.int32)

    def _make_blocks(self, blocks: int) -> None:
        self.bounds, self.hits = np.empty(blocks, np.float32), np.empty(blocks, np.uint16)
        self.heads, self.order = np.empty(blocks, np.int32), np.empty(blocks, np.int32)

    def _make_top(self, k: int) -> None:
        self.top_scores, self.top_documents = np.empty(k, np.float32), np.empty(k, np.int64)
        self.top_counts = np.empty(k, np.uint16)

    @classmethod
    def of_thread(cls) -> "Workspace":
        """The workspace of the calling thread."""
        memory: Workspace | None = getattr(_of_thread, "memory", None)
        if memory is None:
            memory = _of_thread.memory = cls()
        return memory

    def fit(self, *, places: int, blocks: int, k: int) -> None:
        """Grow where needed.

        Args:
            places: values of a block-local id.
            blocks: of the shard.
            k: hits.
        """
        if len(self.scores) < places:
            self._make_places(places)
        if len(self.bounds) < blocks:
            self._make_blocks(blocks)
        if len(self.top_scores) < k:
            self._make_top(k)

    def fit_entries(self, entries: int) -> None:
        """Make room for that many runs, and for half as many again."""
        self.entries = np.empty(entries + entries // 2, self.entries.dtype)

    def term_slots(self, vocabulary_size: int) -> npt.NDArray[np.int32]:
        """int32 [V], zeros; whoever writes to it puts the zeros back."""
        if len(self.slots) != vocabulary_size:
            self.slots = np.zeros(vocabulary_size, np.int32)
        return self.slots
