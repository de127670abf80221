"""The best documents of some shards, before they become hits, and the interface of the shards that find them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from lsr_prod.formats.attributes import AttributeValue
from lsr_prod.search.shard.shard_query import ShardQuery

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
        if len(parts) == 1:
            return parts[0]
        return cls(
            [row for part in parts for row in part.ranked],
            sum(part.matched for part in parts),
            all(part.exact for part in parts),
            any(part.partial for part in parts),
        )


@dataclass(frozen=True, slots=True)
class CollectPlan:
    """What to collect of all matches of a query.

    Attributes:
        k: number of documents to return in the order of ``sort``.
        sort: attribute that orders them; documents without a value come last, ties by rising id; None: no documents.
        descending: largest value first.
        facets: attributes whose values are counted.
    """

    k: int
    sort: str | None
    descending: bool
    facets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Collected:
    """What was collected of all matches in some shards.

    Attributes:
        ranked: value of ``sort`` and document, for the first documents in its order.
        counts: for every facet, matches by value; None is the value of documents that have none.
        matched: number of matches, those below ``floor`` included.
        partial: whether the deadline passed.
    """

    ranked: Sequence[tuple[AttributeValue | None, Ranked]]
    counts: Sequence[Mapping[AttributeValue | None, int]]
    matched: int
    partial: bool


class Shards(Protocol):
    """All shards of one version, in this process or in others."""

    @property
    def missing_groups(self) -> Collection[int]:
        """Shard groups that did not answer the calls so far; none in this process."""

    def match(self, query: ShardQuery) -> Candidates:
        """Return the best ``query.k`` documents of every shard."""

    def collect(self, query: ShardQuery, plan: CollectPlan) -> Collected:
        """Enumerate all matches of a query: the first of them in the order of an attribute, and facet counts."""

    def word_frequencies(self, names: Sequence[str], deadline: float | None = None) -> npt.NDArray[np.int64]:
        """Return int64 [t]: documents of all shards whose text contains each word, deleted documents included.

        After the deadline, a ``time.monotonic()``, words are no longer counted.
        """

    def rescore(
        self, ranked: Sequence[Ranked], ids: npt.NDArray[np.int32], weights: npt.NDArray[np.float32]
    ) -> Sequence[Ranked]:
        """Return the same documents with scores of all stored terms, in any order."""

    def fields(self, ranked: Sequence[Ranked], names: Sequence[str]) -> Sequence[Mapping[str, Any] | None]:
        """Return stored fields and attributes of documents, in their order; None for those of a missing group."""
