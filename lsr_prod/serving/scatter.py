"""The shards of one version on the replicas of a cluster, behind the protocol ``Shards``."""

import asyncio
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Never, TypeVar

import numpy as np

from lsr_prod.errors import QueryError
from lsr_prod.search import array_search, observers, open_index, search_result, searcher
from lsr_prod.search.candidates import Candidates, Collected, CollectPlan, Ranked, merge_collected
from lsr_prod.search.explain import rank_explanation
from lsr_prod.search.hybrid import WeighedWords
from lsr_prod.search.index_snapshot import Snapshot
from lsr_prod.search.query import filters, query_text
from lsr_prod.search.query.search_request import Hybrid
from lsr_prod.search.query.sparse_query import SparseQuery
from lsr_prod.search.shard.postings import ShardQuery
from lsr_prod.serving.groups import DeadlinePassedError, Groups, UnavailableError
from lsr_prod.serving.replica import Pin
from lsr_prod.storage.publications import current_publication

_T = TypeVar("_T")
_FETCH_S = 0.5  # for the fields of the hits to arrive after the deadline
_NOTHING = Candidates([], 0, False, True)
_STATE_S = 1.0  # for a replica to say what it has opened


class ScatteredShards:
    """The shards of one version for one query; see ``Shards``. Every call names the version.

    A group that does not answer a call, because it is dead or too slow, is missing from then on: later calls leave it
    out. If ``groups.partial`` is False, the query fails instead.
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
        self._deadline = query.deadline
        return merge_collected(self._call_all("collect", query, plan).values(), plan)

    def word_frequencies(self, names: Sequence[str], deadline: float | None = None) -> np.typing.NDArray[np.int64]:
        """Return int64 [t]: number of documents of all shards that contain each word."""
        self._deadline = deadline
        found = self._call_all("word_frequencies", list(names))
        return np.sum(list(found.values()), axis=0, dtype=np.int64) if found else np.zeros(len(names), np.int64)

    def rescore(
        self, ranked: Sequence[Ranked], ids: np.typing.NDArray[np.int32], weights: np.typing.NDArray[np.float32]
    ) -> Sequence[Ranked]:
        """Return scores over all stored terms, without documents of missing groups."""
        return [row for _, row in self._call_owners("rescore", ranked, ids, weights)]

    def fields(self, ranked: Sequence[Ranked], names: Sequence[str]) -> Sequence[Mapping[str, Any] | None]:
        """Return stored fields and attributes; None for documents of missing groups."""
        values: list[Mapping[str, Any] | None] = [None] * len(ranked)
        for place, value in self._call_owners("fields", ranked, list(names)):
            values[place] = value
        return values

    def explain(
        self, query: SparseQuery, doc_id: str, hybrid: Hybrid | None, words: WeighedWords | None
    ) -> search_result.Explanation:
        """Explain the score of a document without its ranks; see ``explain_parts``."""
        explanation: search_result.Explanation | None
        for explanation in self._call_all("explain", query, doc_id, hybrid, words).values():
            if explanation is not None:
                return explanation
        if self.missing_groups:
            raise UnavailableError(f"shard groups {sorted(self.missing_groups)} do not answer; try again later")
        raise QueryError(f"there is no document {filters.shorten(doc_id)} in this version; give an id of the index")

    def _call_all(self, method: str, *arguments: Any) -> dict[int, Any]:
        """Return the results of all groups that are not missing."""
        return self._gather({group: self._call(group, method, *arguments) for group in self._present()})

    def _call_owners(self, method: str, ranked: Sequence[Ranked], *arguments: Any) -> Iterator[tuple[int, Any]]:
        """Yield the place of each document in ``ranked`` and its result, without those of missing groups."""
        places: dict[int, list[int]] = {}
        for place, (_, _, shard, _, _) in enumerate(ranked):
            if shard % self._count not in self.missing_groups:
                places.setdefault(shard % self._count, []).append(place)
        calls = {
            group: self._call(group, method, [ranked[place] for place in mine], *arguments)
            for group, mine in places.items()
        }
        for group, found in self._gather(calls).items():
            yield from zip(places[group], found, strict=True)

    def _call(self, group: int, method: str, *arguments: Any) -> Coroutine[Any, Any, Any]:
        return self._groups.call(group, self._pin, method, *arguments, deadline=self._deadline, grace_s=_FETCH_S)

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
            if not isinstance(result, DeadlinePassedError) and len(self.missing_groups) == len(self._used):
                raise result
        return found


class ScatteringSearcher(searcher.Searcher):
    """A ``Searcher`` without open shards: it sends queries to the shard groups, with the version to read.

    ``match_boolean``, ``match_terms``, ``get`` and ``search_arrays`` need open shards and are not supported.
    """

    _shards_opened = ()

    def __init__(
        self,
        index: str | Path,
        groups: Groups,
        *,
        encoder_threads: int,
        options: Mapping[str, str] | None = None,
        observer: observers.Observer | None = None,
        max_query_bytes: int = query_text.MAX_QUERY_BYTES,
    ) -> None:
        location = open_index.locate(index, None, None, options)
        snapshot = open_index.open_current(location, "lazy", shards=self._shards_opened)
        super().__init__(
            snapshot,
            location=location,
            encoder_threads=encoder_threads,
            observer=observer,
            max_query_bytes=max_query_bytes,
        )
        self._groups = groups
        self._watch(snapshot)

    def refresh(self) -> bool:
        """Open the current version when the shard groups have opened it: queries do not wait for their downloads."""
        version = current_publication(self._location.store).version
        if version != self.publication.version:
            lagging = self._groups.submit(self._groups.lagging(version, _STATE_S)).result()
            for group, problem in lagging.items():
                if problem:
                    raise UnavailableError(f"shard group {group} has not opened version {version[:12]}: {problem}")
            if lagging:
                return False
        return super().refresh()

    def bm25(
        self, text: str, k: int = 10, *, count: bool = False, fields: Sequence[str] = (), **unknown: Never
    ) -> search_result.SearchResult:
        """Rank documents by BM25; see ``Searcher.bm25``."""
        if self.version.text_fields and self.version.average_length is None:
            raise QueryError("this index has no postings of words for a served BM25; build it with index.bm25: true")
        return super().bm25(text, k, count=count, fields=fields, **unknown)

    def get(self, doc_ids: Sequence[str], fields: Sequence[str] = ()) -> list[Mapping[str, Any] | None]:  # noqa: ARG002
        """Refuse: ``QueryError``."""
        raise QueryError("get needs open shards; open the index with Searcher")

    def search_arrays(self, *_: Any, **__: Any) -> array_search.ArrayResult:
        """Refuse: ``QueryError``."""
        raise QueryError("search_arrays needs open shards; open the index with Searcher")

    def _explain(
        self, snapshot: Snapshot, query: SparseQuery, doc_id: str, hybrid: Hybrid | None, words: WeighedWords | None
    ) -> search_result.Explanation:
        shards = self._shards(snapshot)
        step = snapshot.version.impact_step
        explained = rank_explanation(shards.explain(query, doc_id, hybrid, words), query, shards, step, hybrid, words)
        if shards.missing_groups:
            raise UnavailableError(
                f"shard groups {sorted(shards.missing_groups)} do not answer, so ranks are unknown; try again later"
            )
        return explained

    def _shards(self, snapshot: Snapshot) -> ScatteredShards:
        publication = snapshot.publication
        return ScatteredShards(self._groups, Pin(publication.number, publication.version), len(snapshot.version.shards))
