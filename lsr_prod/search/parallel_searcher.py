"""``ParallelSearcher``: a ``Searcher`` that matches the shards of a version in parallel."""

import contextlib
import heapq
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Self, Unpack

from lsr_prod.errors import ConfigError
from lsr_prod.search import candidates, index_snapshot, open_settings
from lsr_prod.search.searcher import Searcher
from lsr_prod.search.shard.postings import ShardQuery


class ParallelSearcher(Searcher):
    """A ``Searcher`` that uses several threads per query: for few callers, large shards and idle cores.

    The calling thread matches shards too, and idle threads of the pool help it, so concurrent callers never wait for
    the pool. A query of less than a millisecond gains nothing: for the highest throughput, call a ``Searcher`` from
    several threads instead.

    Hits and ``matched`` equal those of ``Searcher``, ties included, except with ``scan_share`` below 1: ``Searcher``
    then raises the lowest score of a hit from shard to shard, and can read less.

    Examples:
        >>> from lsr_prod.search import ParallelSearcher
        >>> with ParallelSearcher.open("index", threads=2) as searcher:
        ...     [hit.doc_id for hit in searcher.search("a lock").hits]
        ['0', '1']
    """

    _threads = 2

    @classmethod
    def open(  # type: ignore[override]  # it takes the same settings
        cls, index: str | Path, *, threads: int = 2, **settings: Unpack[open_settings.OpenSettings]
    ) -> Self:
        """Open the current version of an index; see ``Searcher.open``.

        Args:
            index: folder or URI of the index.
            threads: threads per query, the calling one included.
            **settings: see ``Searcher.open``.

        Raises:
            ConfigError: ``threads`` is less than 1, a setting is unknown, or its value is not possible.
            PublicationError: nothing is published there.
            ArtifactError: the version is incomplete, damaged or of another format.
        """
        open_settings.check_unknown(settings, more=["threads"])
        if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
            raise ConfigError("threads", f"{threads!r} is not a number of threads", "set it to 1 or more")
        searcher = super().open(index, **settings)
        searcher._threads = threads
        return searcher

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(max(1, self._threads - 1), thread_name_prefix="lsr-shard")

    def close(self) -> None:
        """Stop the threads and release the index; running queries finish, later ones raise ``QueryError``."""
        super().close()
        self._pool.shutdown()

    def _shards(self, snapshot: index_snapshot.Snapshot) -> candidates.Shards:
        return _ParallelShards(snapshot, self._pool, self._threads - 1)


class _ParallelShards:
    """The open shards of a snapshot, matched in parallel; all else is done by the snapshot. See ``Shards``."""

    missing_groups: tuple[int, ...] = ()

    def __init__(self, snapshot: index_snapshot.Snapshot, pool: ThreadPoolExecutor, helpers: int) -> None:
        self._snapshot = snapshot
        self._pool = pool
        self._helpers = helpers
        self.collect = snapshot.collect
        self.word_frequencies = snapshot.word_frequencies
        self.rescore = snapshot.rescore
        self.fields = snapshot.fields

    def match(self, query: ShardQuery) -> candidates.Candidates:
        """Return the best documents of every shard."""
        run = _ParallelMatch(self._snapshot, query)
        helpers: list[Future[None]] = []
        with contextlib.suppress(RuntimeError):  # closed since the query started: it continues in this thread
            helpers += (self._pool.submit(run.work) for _ in range(min(self._helpers, len(self._snapshot.readers) - 1)))
        run.work()
        for helper in helpers:
            if not helper.cancel():
                helper.result()
        return run.result()


class _ParallelMatch:
    """Progress of one query: the shards that are left, and the candidates found so far."""

    def __init__(self, snapshot: index_snapshot.Snapshot, query: ShardQuery) -> None:
        self._snapshot = snapshot
        self._query = query
        # The largest shard is last in the list and taken first: taken last, it would keep one thread busy alone.
        self._remaining = sorted(snapshot.readers, key=lambda number: snapshot.readers[number].shard.manifest.documents)
        self._lock = threading.Lock()
        self._best: list[float] = []
        self._floor = query.floor
        self._done: list[candidates.Candidates] = []
        self._error: BaseException | None = None

    def work(self) -> None:
        """Match shards until none is left; errors are kept for ``result``."""
        while (task := self._next()) is not None:
            try:
                found = self._snapshot.match_one(*task)
            except BaseException as error:  # noqa: BLE001 - raised again by result(), in the calling thread
                with self._lock:
                    self._error, self._remaining = self._error or error, []
                return
            self._add(found)

    def result(self) -> candidates.Candidates:
        """Return all candidates; call it after all threads have finished."""
        if self._error is not None:
            raise self._error
        return candidates.Candidates.join(self._done)

    def _next(self) -> tuple[int, ShardQuery, float] | None:
        with self._lock:
            if not self._remaining:
                return None
            if self._query.deadline is not None and time.monotonic() >= self._query.deadline:
                self._remaining = []
                self._done.append(candidates.Candidates([], 0, False, True))
                return None
            return self._remaining.pop(), self._query, self._floor

    def _add(self, found: candidates.Candidates) -> None:
        """Add the candidates of a shard, and raise the floor to the k-th best score so far if the search is exact.

        Below a ``scan_share`` of 1 the floor changes hits, which would depend on which shard finishes first.
        """
        k = self._query.k
        with self._lock:
            self._done.append(found)
            if k and self._remaining and self._query.scan_share == 1:
                self._best = heapq.nlargest(k, [*self._best, *(-row[0] for row in found.ranked)])
                if len(self._best) == k:
                    self._floor = max(self._query.floor, self._best[-1])
