"""Reader of one shard of an index version, without the documents that the version has deleted."""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lsr_prod.errors import ArtifactError
from lsr_prod.search.kernel.workspace import Workspace
from lsr_prod.search.shard.open_shard import OpenShard
from lsr_prod.search.shard.postings import ShardHits
from lsr_prod.search.shard.shard_query import ShardQuery, WordQuery

if TYPE_CHECKING:
    from lsr_prod.search.query.filters import Filter
    from lsr_prod.search.shard.masks import Mask, MaskCache

__all__ = ["ShardReader"]

# Share of a shard below which scoring the allowed documents one by one is faster than the scan.
_FEW = 1 / 200
_RECENT = 8  # masks that are found without computing their key
_MASK_BYTES = 64 << 20  # of cached masks per shard


class ShardReader:
    """One shard of an open version. Safe to share between threads.

    Attributes:
        shard: its files.
        dk: terms per document in the postings.
    """

    def __init__(self, shard: OpenShard, alive: npt.NDArray[np.uint8] | None, *, dk: int) -> None:
        """Combine a shard with its tombstones.

        Args:
            shard: the opened shard.
            alive: uint8 [N], 0 for deleted documents; None: no document is deleted.
            dk: terms per document in the postings.
        """
        self.shard = shard
        self.dk = dk
        self._alive = alive
        self._recent_masks: deque[tuple[Filter, Mask]] = deque(maxlen=_RECENT)

    def match(self, query: ShardQuery, workspace: Workspace, floor: float) -> ShardHits:
        """Find the best documents of this shard.

        Args:
            query: the query.
            workspace: of the calling thread.
            floor: lowest score of a hit over all shards, at least the query's own floor.

        Raises:
            QueryError: the filter does not fit the attributes.
            ArtifactError: the shard is damaged.
        """
        if query.words is not None:
            query = self._with_word_ids(query, query.words)
        allowed = self._alive
        if query.filter is not None:
            mask = self._mask(query.filter)
            only_terms = query.words is None and query.counted.all()  # the forward copy has no words
            if only_terms and _is_few(mask):
                return self._score_allowed(mask, query, workspace)
            allowed = mask.allowed
        return self.shard.postings.match(query, workspace, floor=floor, allowed=allowed)

    def _with_word_ids(self, query: ShardQuery, words: WordQuery) -> ShardQuery:
        """Append the words that this shard holds to the terms of the query."""
        found = self.word_ids(words.names)
        held = found >= 0
        return replace(
            query,
            ids=np.concatenate([query.ids, found[held]]),
            weights=np.concatenate([query.weights, words.weights[held]]),
            counted=np.concatenate([query.counted, np.full(int(held.sum()), words.counted, np.uint8)]),
        )

    def word_ids(self, names: Sequence[str]) -> npt.NDArray[np.int32]:
        """Return int32 [t]: ids of words in the postings of this shard, -1 for words that no document of it holds.

        Raises:
            ArtifactError: the shard was built without words.
        """
        if self.shard.words is None:
            raise ArtifactError(f"{self.shard.folder} has no words, though its version has; build the index again")
        return self.shard.words.ids(names)

    def _score_allowed(self, mask: "Mask", query: ShardQuery, workspace: Workspace) -> ShardHits:
        """Score the allowed documents one by one: the same hits as those of the scan."""
        ordinals = mask.ordinals
        scores, overlaps = self.shard.forward.score(
            ordinals, query.ids, query.weights, workspace, dk=self.dk, vectors=mask.vectors
        )
        found = overlaps >= query.required
        matched = int(found.sum())
        found &= scores >= np.float32(query.floor)
        ordinals, scores, overlaps = ordinals[found], scores[found], overlaps[found]
        self.shard.postings.verify_ranks()
        order = np.lexsort((self.shard.arrays.id_rank[ordinals], -scores))[: query.k]
        return ShardHits(
            matched, True, False, 0, ordinals[order].tolist(), scores[order].tolist(), overlaps[order].tolist()
        )

    @property
    def alive(self) -> npt.NDArray[np.uint8] | None:
        """uint8 [N], 0 for deleted documents; None: no document is deleted."""
        return self._alive

    def is_alive(self, ordinal: int) -> bool:
        """Return whether a document of the shard can be found."""
        return self._alive is None or bool(self._alive[ordinal])

    def ordinal(self, doc_id: str) -> int | None:
        """Return the ordinal of a document that can be found, or None."""
        ordinal = self.shard.ordinal(doc_id)
        return ordinal if ordinal is not None and self.is_alive(ordinal) else None

    @cached_property
    def _masks(self) -> "MaskCache":
        from lsr_prod.search.shard.masks import MaskCache

        return MaskCache(_MASK_BYTES)

    def _mask(self, expression: "Filter") -> "Mask":
        from lsr_prod.search.shard.masks import Mask, evaluate

        def compute() -> "Mask":
            documents = self.shard.documents
            documents.verify_columns(documents.filter_columns)
            allowed = evaluate(expression, documents.batches)
            mask = Mask.of(allowed if self._alive is None else allowed & self._alive)
            return replace(mask, vectors=self.shard.forward.gather(mask.ordinals, self.dk)) if _is_few(mask) else mask

        for recent, mask in self._recent_masks.copy():  # computing a key costs as much as a small scan
            if recent is expression:
                return mask
        mask = self._masks.get(expression.key, compute)
        self._recent_masks.append((expression, mask))
        return mask


def _is_few(mask: "Mask") -> bool:
    """Return whether scoring the documents of a mask one by one is faster than the scan."""
    return len(mask.ordinals) < _FEW * len(mask.allowed)
