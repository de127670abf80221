"""The indexes of one worker process, its threads, and the requests that it admits."""

import operator
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

from fastapi import HTTPException
from prometheus_client import CollectorRegistry

from lsr_prod.errors import QueryError
from lsr_prod.search import Explanation, PrometheusObserver, Searcher, SearchResult
from lsr_prod.search.follower import Follower
from lsr_prod.search.open_index import split_publication
from lsr_prod.search.server import Admission, Collector

Side = Literal["a", "b"]


class Backend:
    """Searches one index, or two side by side.

    Attributes:
        admission: of the requests that need a thread.
    """

    def __init__(
        self,
        a: str,
        b: str | None,
        *,
        threads: int,
        waiting: int,
        wait_s: float,
        poll_seconds: float,
        deadline_ms: float,
    ) -> None:
        """Open the indexes and their encoders.

        Args:
            a: folder or URI of an index; with ``@NUMBER`` it stays at that publication, else it follows the current.
            b: the same for the second side; None: there is none.
            threads: searches that run at the same time.
            waiting: searches that wait at most.
            wait_s: seconds that a search may have to wait, estimated from the last ones.
            poll_seconds: seconds between two checks for a new publication.
            deadline_ms: milliseconds after which a search returns the best documents found so far.
        """
        self.metrics = CollectorRegistry()
        self.sides: dict[Side, Searcher] = {}
        self.names: dict[Side, str] = {}
        self.followers: list[Follower] = []
        for side, place in (("a", a), ("b", b)):
            if place:
                self._open(side, place, poll_seconds)  # type: ignore[arg-type]
        self.admission = Admission(threads + waiting, wait_s)
        self._collector = Collector(operator.call, threads, "search")
        self._deadline_ms = deadline_ms

    def _open(self, side: Side, place: str, poll_seconds: float) -> None:
        index, number = split_publication(place)
        observer = PrometheusObserver(self.metrics) if side == "a" else None  # a registry has each metric once
        searcher = Searcher.open(index, publication=number, observer=observer)
        searcher.warm()  # now, not in the first request
        if number is None:
            self.followers.append(searcher.follow(poll_seconds))  # searches that run continue in their version
        self.sides[side] = searcher
        self.names[side] = place.rstrip("/").rpartition("/")[2]  # the place itself is no business of a client

    @property
    def problem(self) -> str | None:
        """The reason why an index does not follow its publications; None: there is none."""
        return next((follower.problem for follower in self.followers if follower.problem is not None), None)

    def searcher(self, side: Side) -> Searcher:
        """Return the index of a side."""
        if side not in self.sides:
            raise HTTPException(404, "there is no second index; set LSR_INDEX_B")
        return self.sides[side]

    async def search(self, side: Side, text: str, k: int, **options: Any) -> SearchResult:
        """Search in a thread: the kernels release the GIL, so threads use several cores."""
        return await self._run(partial(self.searcher(side).search, text, k, deadline_ms=self._deadline_ms, **options))

    async def explain(self, side: Side, text: str, doc_id: str, **options: Any) -> Explanation:
        """Explain the score of a document in a thread."""
        return await self._run(partial(self.searcher(side).explain, text, doc_id, **options))

    async def _run(self, work: Callable[[], Any]) -> Any:
        try:
            found: Any = await self._collector.run(work)
            return found
        except QueryError as error:
            raise HTTPException(400, str(error)) from error

    def close(self) -> None:
        """Wait for running searches, and release the indexes; the threads that follow end."""
        self._collector.close()
        for searcher in self.sides.values():
            searcher.close()
