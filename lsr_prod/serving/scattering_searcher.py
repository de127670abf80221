"""``Searcher`` of a router: it sends queries to the shard groups."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Never

from lsr_prod.errors import QueryError
from lsr_prod.search.array_search import ArrayResult
from lsr_prod.search.explain import rank_explanation
from lsr_prod.search.hybrid import WeighedWords
from lsr_prod.search.location import locate
from lsr_prod.search.metrics import Observer
from lsr_prod.search.opening.index import open_current
from lsr_prod.search.query.query_text import MAX_QUERY_BYTES
from lsr_prod.search.query.request import Hybrid
from lsr_prod.search.query.sparse_query import SparseQuery
from lsr_prod.search.result import Explanation, SearchResult
from lsr_prod.search.searcher import Searcher
from lsr_prod.search.snapshot import Snapshot
from lsr_prod.serving.calls import UnavailableError
from lsr_prod.serving.groups import Groups
from lsr_prod.serving.scatter import ScatteredShards
from lsr_prod.serving.versions import Pin

_STATE_S = 1.0  # for a replica to say what it has opened


class ScatteringSearcher(Searcher):
    """A ``Searcher`` without open shards: it sends queries to the shard groups, with the version to read.

    ``match_boolean``, ``match_tantivy``, ``get`` and ``search_arrays`` need open shards and are not supported.
    """

    _shards_opened = ()

    def __init__(
        self,
        index: str | Path,
        groups: Groups,
        *,
        encoder_threads: int,
        options: Mapping[str, str] | None = None,
        observer: Observer | None = None,
        max_query_bytes: int = MAX_QUERY_BYTES,
    ) -> None:
        location = locate(index, None, None, options)
        snapshot = open_current(location, "lazy", shards=self._shards_opened)
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
        version = self._location.current_publication().version
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
    ) -> SearchResult:
        """Rank documents by BM25; see ``Searcher.bm25``."""
        if self.version.text_fields and self.version.average_length is None:
            raise QueryError("this index has no postings of words for a served BM25; build it with index.bm25: true")
        return super().bm25(text, k, count=count, fields=fields, **unknown)

    def get(self, doc_ids: Sequence[str], fields: Sequence[str] = ()) -> list[Mapping[str, Any] | None]:  # noqa: ARG002
        """Refuse: ``QueryError``."""
        raise QueryError("get needs open shards; open the index with Searcher")

    def search_arrays(self, *_: Any, **__: Any) -> ArrayResult:
        """Refuse: ``QueryError``."""
        raise QueryError("search_arrays needs open shards; open the index with Searcher")

    def _explain(
        self, snapshot: Snapshot, query: SparseQuery, doc_id: str, hybrid: Hybrid | None, words: WeighedWords | None
    ) -> Explanation:
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
        pin = Pin(publication.number, publication.version)
        return ScatteredShards(self._groups, pin, len(snapshot.version.shards))
