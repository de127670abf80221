"""A shard as one version has it: without its deleted documents."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lsr_prod.errors import ArtifactError
from lsr_prod.search.shard import OpenShard, ShardHits
from lsr_prod.search.workspace import Workspace

if TYPE_CHECKING:
    from lsr_prod.search.filters import Filter
    from lsr_prod.search.masks import Mask, MaskCache

__all__ = ["Part", "ShardQuery", "WordQuery"]

# Share of a shard below which scoring the allowed documents one by one is quicker than the scan.
_FEW = 1 / 200
_RECENT = 8  # masks that are found without their key
_MASK_BYTES = 64 << 20  # of cached masks a shard


@dataclass(frozen=True, slots=True)
class WordQuery:
    """Words of a text, as shards match them by BM25; their ids differ from shard to shard.

    Attributes:
        names: t distinct words, as the index holds them.
        weights: float32 [t], what one impact unit adds to a score.
        counted: whether they count towards ``ShardQuery.required``.
    """

    names: tuple[str, ...]
    weights: npt.NDArray[np.float32]
    counted: bool


@dataclass(frozen=True, slots=True)
class ShardQuery:
    """A query as shards match it.

    Attributes:
        ids: int32 [q], terms of the vocabulary, in the query's order.
        weights: float32 [q], what one impact unit adds to a score.
        counted: uint8 [q], 1 for terms that count towards ``required``.
        required: terms that a document must share, 1 or more.
        k: hits wanted.
        floor: least score of a hit.
        exhaustive: count every match.
        deadline: ``time.monotonic()`` after which to stop; None: never.
        filter: which documents may be found; None: all.
        words: matched beside the terms; None: none.
    """

    ids: npt.NDArray[np.int32]
    weights: npt.NDArray[np.float32]
    counted: npt.NDArray[np.uint8]
    required: int
    k: int
    floor: float = 0.0
    exhaustive: bool = False
    deadline: float | None = None
    filter: "Filter | None" = None
    words: "WordQuery | None" = None


class Part:
    """One shard of an open version. Safe to share between threads.

    Attributes:
        shard: its files.
        dk: terms of a document in the postings.
        vocabulary_size: V.
    """

    def __init__(self, shard: OpenShard, alive: npt.NDArray[np.uint8] | None, *, dk: int, vocabulary_size: int) -> None:
        """Combine a shard with its tombstones.

        Args:
            shard: opened.
            alive: uint8 [N], 0 for deleted documents; None: nothing is deleted.
            dk: terms of a document in the postings.
            vocabulary_size: V.
        """
        self.shard = shard
        self.dk = dk
        self.vocabulary_size = vocabulary_size
        self._alive = alive
        self._recent_masks: deque[tuple[Filter, Mask]] = deque(maxlen=_RECENT)

    def match(self, query: ShardQuery, memory: Workspace, floor: float) -> ShardHits:
        """The best documents of this shard.

        Args:
            query: what is asked.
            memory: of the calling thread.
            floor: a score that a hit of the whole query needs; no less than the query's own.

        Raises:
            QueryError: the filter does not fit the attributes.
            ArtifactError: the shard is damaged.
        """
        if query.words is not None:
            query = self._resolve(query, query.words)
        allowed = self._alive
        if query.filter is not None:
            mask = self._mask(query.filter)
            encoded = query.words is None and query.counted.all()  # the forward arrays hold no words
            if encoded and _is_few(mask):
                return self._score_all(mask, query, memory)
            allowed = mask.allowed
        return self.shard.match(
            query.ids,
            query.weights,
            query.counted,
            required=query.required,
            k=query.k,
            memory=memory,
            allowed=allowed,
            floor=floor,
            exhaustive=query.exhaustive,
            deadline=query.deadline,
        )

    def _resolve(self, query: ShardQuery, words: WordQuery) -> ShardQuery:
        """The query with the words of this shard behind its terms."""
        found = self.word_ids(words.names)
        held = found >= 0
        return replace(
            query,
            ids=np.concatenate([query.ids, found[held]]),
            weights=np.concatenate([query.weights, words.weights[held]]),
            counted=np.concatenate([query.counted, np.full(int(held.sum()), words.counted, np.uint8)]),
        )

    def word_ids(self, names: Sequence[str]) -> npt.NDArray[np.int32]:
        """int32 [t]: ids of words in the postings of this shard, -1 for those that no document of it holds.

        Raises:
            ArtifactError: the shard was built without words.
        """
        if self.shard.words is None:
            raise ArtifactError(f"{self.shard.folder} has no words, though its version has; build the index again")
        return self.shard.words.ids(names)

    def _score_all(self, mask: "Mask", query: ShardQuery, memory: Workspace) -> ShardHits:
        """Score documents one by one: the same hits as the scan, for a filter that few documents pass."""
        ordinals = mask.ordinals
        scores, overlaps = self.shard.score(
            ordinals,
            query.ids,
            query.weights,
            dk=self.dk,
            vocabulary_size=self.vocabulary_size,
            memory=memory,
            vectors=mask.vectors,
        )
        found = overlaps >= query.required
        matched = int(found.sum())
        found &= scores >= np.float32(query.floor)
        ordinals, scores, overlaps = ordinals[found], scores[found], overlaps[found]
        self.shard.verify_ranks()
        order = np.lexsort((self.shard.arrays.id_rank[ordinals], -scores))[: query.k]
        return ShardHits(
            matched, True, False, 0, ordinals[order].tolist(), scores[order].tolist(), overlaps[order].tolist()
        )

    def score(
        self,
        ordinals: npt.NDArray[np.int64],
        ids: npt.NDArray[np.int32],
        weights: npt.NDArray[np.float32],
        memory: Workspace,
        *,
        dk: int,
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.uint16]]:
        """Scores and shared terms of given documents; see ``OpenShard.score``."""
        return self.shard.score(ordinals, ids, weights, dk=dk, vocabulary_size=self.vocabulary_size, memory=memory)

    def is_alive(self, ordinal: int) -> bool:
        """Whether a document of the shard can be found."""
        return self._alive is None or bool(self._alive[ordinal])

    def ordinal(self, doc_id: str) -> int | None:
        """The ordinal of a document that can be found, or None."""
        ordinal = self.shard.ordinal(doc_id)
        return ordinal if ordinal is not None and self.is_alive(ordinal) else None

    @cached_property
    def _masks(self) -> "MaskCache":
        from lsr_prod.search.masks import MaskCache

        return MaskCache(_MASK_BYTES)

    def _mask(self, expression: "Filter") -> "Mask":
        from lsr_prod.search.masks import Mask, evaluate

        def compute() -> "Mask":
            self.shard.documents.verify_columns(self.shard.documents.filter_columns)
            allowed = evaluate(expression, self.shard.documents.batches)
            mask = Mask.of(allowed if self._alive is None else allowed & self._alive)
            return replace(mask, vectors=self.shard.gather(mask.ordinals, self.dk)) if _is_few(mask) else mask

        for asked, mask in self._recent_masks.copy():  # to make a key costs as much as a small scan
            if asked is expression:
                return mask
        mask = self._masks.get(expression.key, compute)
        self._recent_masks.append((expression, mask))
        return mask


def _is_few(mask: "Mask") -> bool:
    """Whether scoring the documents of a mask one by one is quicker than the scan."""
    return len(mask.ordinals) < _FEW * len(mask.allowed)
