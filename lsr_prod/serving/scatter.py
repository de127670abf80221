"""The shards of one version on the replicas of a cluster, behind the protocol ``Shards``."""

import asyncio
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from lsr_prod.errors import QueryError
from lsr_prod.search.candidates import Candidates, Collected, CollectPlan, Ranked
from lsr_prod.search.collect import merge_collected
from lsr_prod.search.hybrid import WeighedWords
from lsr_prod.search.query.filters import shorten
from lsr_prod.search.query.request import Hybrid
from lsr_prod.search.query.sparse_query import SparseQuery
from lsr_prod.search.result import Explanation
from lsr_prod.search.shard.shard_query import ShardQuery
from lsr_prod.serving.calls import UnavailableError
from lsr_prod.serving.groups import DeadlinePassedError, Groups
from lsr_prod.serving.versions import Pin

_T = TypeVar("_T")
_FETCH_S = 0.5  # for the fields of the hits to arrive after the deadline
_NOTHING = Candidates([], 0, False, True)


class ScatteredShards:
    """The shards of one version for one query; see ``Shards``. Every call names the version.

    A group that does not answer a call, because it is dead or too slow, is missing from then on: later calls leave it
    out. If ``groups.partial`` is False, the query fails instead.

    Attributes:
        missing_groups: the groups that did not answer.
    """

    def __init__(self, groups: Groups, pin: Pin, shards: int) -> None:
        self.missing_groups: set[int] = set()
        self._deadline: float | None = None
        self._groups = groups
        self._pin = pin
        self._count = len(groups.handles)
        self._used = range(min(shards, self._count))  # groups that have a shard

    def match(self, query: ShardQuery) -> Candidates:
        """Return the best documents of all groups, queried in parallel."""
        self._deadline = query.deadline
        found = self._gather({group: self._groups.match(group, self._pin, query) for group in self._present()})
        return Candidates.join([found.get(group, _NOTHING) for group in self._used])

    def collect(self, query: ShardQuery, plan: CollectPlan) -> Collected:
        """Enumerate all matches of all groups, in parallel."""
        self._deadline, timeless = query.deadline, replace(query, deadline=None)
        left_s = None if query.deadline is None else max(0.0, query.deadline - time.monotonic())
        found: dict[int, Collected] = self._gather(
            {group: self._call(group, "collect", timeless, plan, left_s) for group in self._present()}
        )
        return merge_collected(found.values(), plan)

    def word_frequencies(self, names: Sequence[str], deadline: float | None = None) -> npt.NDArray[np.int64]:
        """Return int64 [t]: number of documents of all shards that contain each word."""
        self._deadline = deadline
        found = self._gather({group: self._call(group, "word_frequencies", list(names)) for group in self._present()})
        return np.sum(list(found.values()), axis=0, dtype=np.int64) if found else np.zeros(len(names), np.int64)

    def rescore(
        self, ranked: Sequence[Ranked], ids: npt.NDArray[np.int32], weights: npt.NDArray[np.float32]
    ) -> Sequence[Ranked]:
        """Return scores over all stored terms, without documents of missing groups."""
        found: dict[int, list[Ranked]] = self._gather(
            {
                group: self._call(group, "rescore", [ranked[place] for place in places], ids, weights)
                for group, places in self._by_group(ranked).items()
            }
        )
        return [row for rows in found.values() for row in rows]

    def fields(self, ranked: Sequence[Ranked], names: Sequence[str]) -> Sequence[Mapping[str, Any] | None]:
        """Return stored fields and attributes; None for documents of missing groups."""
        by_group = self._by_group(ranked)
        found: dict[int, list[Mapping[str, Any]]] = self._gather(
            {
                group: self._call(group, "fields", [ranked[place] for place in places], list(names))
                for group, places in by_group.items()
            }
        )
        values: list[Mapping[str, Any] | None] = [None] * len(ranked)
        for group, rows in found.items():
            for place, value in zip(by_group[group], rows, strict=True):
                values[place] = value
        return values

    def explain(
        self, query: SparseQuery, doc_id: str, hybrid: Hybrid | None, words: WeighedWords | None
    ) -> Explanation:
        """Explain the score of a document without its ranks; see ``explain_parts``."""
        asked = query, doc_id, hybrid, words
        found: dict[int, Explanation | None] = self._gather(
            {group: self._call(group, "explain", *asked) for group in self._present()}
        )
        for explanation in found.values():
            if explanation is not None:
                return explanation
        if self.missing_groups:
            raise UnavailableError(f"shard groups {sorted(self.missing_groups)} do not answer; try again later")
        raise QueryError(f"there is no document {shorten(doc_id)} in this version; give an id of the index")

    def _call(self, group: int, method: str, *arguments: Any) -> Coroutine[Any, Any, Any]:
        timeout_s = None if self._deadline is None else max(0.0, self._deadline - time.monotonic()) + _FETCH_S
        return self._groups.call(group, method, self._pin, *arguments, timeout_s=timeout_s)

    def _present(self) -> list[int]:
        return [group for group in self._used if group not in self.missing_groups]

    def _gather(self, calls: Mapping[int, Coroutine[Any, Any, _T]]) -> dict[int, _T]:
        """Return the results of the calls by group; blocks the calling thread, not the event loop."""

        async def run() -> list[_T | BaseException]:
            return await asyncio.gather(*calls.values(), return_exceptions=True)

        found: dict[int, _T] = {}
        for group, result in zip(calls, self._groups.submit(run()).result(), strict=True):
            if not isinstance(result, BaseException):
                found[group] = result
                continue
            if not isinstance(result, UnavailableError) or not self._groups.partial:
                raise result
            self.missing_groups.add(group)
            late = isinstance(result, DeadlinePassedError)
            if not late and len(self.missing_groups) == len(self._used):
                raise result
        return found

    def _by_group(self, ranked: Sequence[Ranked]) -> dict[int, list[int]]:
        """Return positions in ``ranked`` by the group of the document, without missing groups."""
        places: dict[int, list[int]] = {}
        for place, (_, _, shard, _, _) in enumerate(ranked):
            if shard % self._count not in self.missing_groups:
                places.setdefault(shard % self._count, []).append(place)
        return places
