"""The best documents of some shards, before they become hits, and the interface of the shards that find them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from lsr_prod.search.shard.shard_query import ShardQuery

__all__ = ["Candidates", "Ranked", "Shards"]


# Negative score, id, shard, ordinal, overlap: sorts by falling score, then by rising id. A tuple, not a class: a result
# has up to 10,000 of them, and creating them is part of the matching time.
Ranked = tuple[float, str, int, int, int]


@dataclass(frozen=True, slots=True)
class Candidates:
    """The best documents of some shards.

    Attributes:
        ranked: the documents, in no order across shards.
        matched: as in ``SearchResult``.
        exact: whether ``matched`` counts all matching documents.
        partial: whether the deadline passed.
    """

    ranked: Sequence[Ranked]
    matched: int
    exact: bool
    partial: bool

    @classmethod
    def join(cls, parts: "Sequence[Candidates]") -> "Candidates":
        """Return the candidates of all parts together."""
        return cls(
            [row for part in parts for row in part.ranked],
            sum(part.matched for part in parts),
            all(part.exact for part in parts),
            any(part.partial for part in parts),
        )


class Shards(Protocol):
    """All shards of one version, in this process or in others."""

    def match(self, query: ShardQuery) -> Candidates:
        """Return the best ``query.k`` documents of every shard."""

    def word_frequencies(self, names: Sequence[str]) -> npt.NDArray[np.int64]:
        """Return int64 [t]: documents of all shards whose text contains each word, deleted documents included."""

    def rescore(
        self, ranked: Sequence[Ranked], ids: npt.NDArray[np.int32], weights: npt.NDArray[np.float32]
    ) -> Sequence[Ranked]:
        """Return the same documents with scores of all stored terms, in any order."""

    def fields(self, ranked: Sequence[Ranked], names: Sequence[str]) -> Sequence[Mapping[str, Any]]:
        """Return stored fields and attributes of documents, in their order."""
