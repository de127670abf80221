"""Reader of one shard of an index version, without the documents that the version has deleted."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lsr_prod.errors import ArtifactError
from lsr_prod.search.shard.mask_cache import Mask, MaskCache
from lsr_prod.search.shard.open_shard import OpenShard
from lsr_prod.search.shard.postings import ShardHits
from lsr_prod.search.shard.shard_query import ShardQuery

if TYPE_CHECKING:
    from lsr_prod.search.query.filters import Filter
    from lsr_prod.search.shard.masks import FindTokens

# Share of a shard below which scoring the allowed documents one by one is faster than the scan.
_FEW = 1 / 200
_WORDS = 256  # words that are looked up between two checks of the deadline
_MASK_BYTES = 64 << 20  # of the masks of a reader without a version


class ShardReader:
    """One shard of an open version. Safe to share between threads.

    Attributes:
        shard: its files.
        dk: terms per document in the postings.
    """

    def __init__(
        self,
        shard: OpenShard,
        alive: npt.NDArray[np.uint8] | None,
        *,
        dk: int,
        find_tokens: "FindTokens | None" = None,
        masks: MaskCache | None = None,
    ) -> None:
        """Combine a shard with its tombstones."""
        self.shard = shard
        self._find_tokens = find_tokens
        self.dk = dk
        self._alive = alive
        self._masks = MaskCache(_MASK_BYTES) if masks is None else masks

    def match(self, query: ShardQuery, floor: float) -> ShardHits:
        """Find the best documents of this shard."""
        query = self.with_words(query)
        allowed = self._alive
        if query.filter is not None:
            mask = self._mask(query.filter)
            only_terms = query.words is None and query.counted.all()  # the forward copy has no words
            if only_terms and mask.ordinals is not None:
                return self._score_allowed(mask, mask.ordinals, query)
            allowed = mask.allowed
        return self.shard.postings.match(query, floor=floor, allowed=allowed)

    def allowed(self, expression: "Filter | None") -> npt.NDArray[np.uint8] | None:
        """Return uint8 [N], 1 for documents that can be found and pass a filter; None: all."""
        return self._alive if expression is None else self._mask(expression).allowed

    def with_words(self, query: ShardQuery) -> ShardQuery:
        """Append the words of a query that this shard holds to its terms."""
        words = query.words
        if words is None:
            return query
        found = self.word_ids(words.names, query.deadline)
        held = found >= 0
        return replace(
            query,
            ids=np.concatenate([query.ids, found[held]]),
            weights=np.concatenate([query.weights, words.weights[held]]),
            counted=np.concatenate([query.counted, np.full(int(held.sum()), words.counted, np.uint8)]),
        )

    def word_ids(self, names: Sequence[str], deadline: float | None = None) -> npt.NDArray[np.int32]:
        """Return int32 [t]: ids of words in the postings of this shard, -1 for words that no document of it holds.

        Words that are not found by the deadline, a ``time.monotonic()``, get -1 too.
        """
        if self.shard.words is None:
            raise ArtifactError(f"{self.shard.folder} has no words, though its version has; build the index again")
        if deadline is None:
            return self.shard.words.ids(names)
        found = np.full(len(names), -1, np.int32)
        for start in range(0, len(names), _WORDS):
            if time.monotonic() >= deadline:
                break
            found[start : start + _WORDS] = self.shard.words.ids(names[start : start + _WORDS])
        return found

    def _score_allowed(self, mask: Mask, ordinals: npt.NDArray[np.int64], query: ShardQuery) -> ShardHits:
        """Score the allowed documents one by one: the same hits as those of the scan."""
        scores, overlaps = self.shard.forward.score(
            ordinals, query.ids, query.weights, dk=self.dk, vectors=mask.vectors
        )
        found = overlaps >= query.required
        matched = int(found.sum())
        found &= scores >= np.float32(query.floor)
        ordinals, scores, overlaps = ordinals[found], scores[found], overlaps[found]
        order = np.lexsort((self.ranks[ordinals], -scores))[: query.k]
        return ShardHits(
            matched, True, False, 0, ordinals[order].tolist(), scores[order].tolist(), overlaps[order].tolist()
        )

    @property
    def ranks(self) -> npt.NDArray[np.uint32]:
        """uint32 [N]: the position of every document among the sorted ids."""
        self.shard.postings.verify_ranks()
        return self.shard.arrays.id_rank

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

    def _mask(self, expression: "Filter") -> Mask:
        return self._masks.get((self.shard.manifest.sha, expression.key), lambda: self._evaluate(expression))

    def _evaluate(self, expression: "Filter") -> Mask:
        from lsr_prod.search.shard.masks import evaluate

        shard, documents = self.shard, self.shard.documents
        allowed = evaluate(
            expression, documents.batches, self._find_tokens, ordinal=shard.ordinal, verify=documents.verify_columns
        )
        mask = Mask.of(allowed if self._alive is None else allowed & self._alive, _FEW * len(allowed))
        return mask if mask.ordinals is None else replace(mask, vectors=shard.forward.gather(mask.ordinals, self.dk))
