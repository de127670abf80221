"""``ParallelSearcher``: a ``Searcher`` that matches the shards of a version side by side."""

import contextlib
import heapq
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack

import numpy as np
import numpy.typing as npt

from lsr_prod.errors import ConfigError, QueryError
from lsr_prod.search.candidates import Candidates, Ranked, Shards
from lsr_prod.search.searcher import OpenSettings, Searcher
from lsr_prod.search.shard.shard_query import ShardQuery
from lsr_prod.search.snapshot import Snapshot

__all__ = ["ParallelSearcher"]


class ParallelSearcher(Searcher):
    """A ``Searcher`` whose queries use several threads each: for few callers, large shards and cores that are free.

    The calling thread takes part, and threads of the pool help it as far as they are free; so many callers at once
    never wait for the pool. A query of less than a millisecond gains nothing: for most queries a second, ask a
    ``Searcher`` from threads of your own instead.

    Hits are those of the ``Searcher``, ties included. ``matched`` is too with ``count=True``; without, it counts the
    documents seen, and which blocks can be left out depends on which shard is done first.
    """

    _threads = 2
    _closed = False

    @classmethod
    def open(cls, index: str | Path, *, threads: int = 2, **settings: Unpack[OpenSettings]) -> Self:
        """Open the current version of an index; see ``Searcher.open``.

        Args:
            index: folder or URI of the index.
            threads: that match one query, the calling one included.
            **settings: see ``Searcher.open``.

        Raises:
            ConfigError: ``threads`` is less than 1.
            PublicationError: nothing is published there.
            ArtifactError: the version is incomplete, damaged or of another format.
        """
        if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
            raise ConfigError("threads", f"{threads!r} is no number of threads", "give 1 or more")
        searcher = super().open(index, **settings)
        searcher._threads = threads
        return searcher

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(max(1, self._threads - 1), thread_name_prefix="lsr-shard")

    def close(self) -> None:
        """End the threads; queries that run are answered, later ones are refused."""
        self._closed = True
        self._pool.shutdown()

    def __enter__(self) -> Self:
        """The searcher itself; it is closed at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def _shards(self, snapshot: Snapshot) -> Shards:
        if self._closed:
            raise QueryError("this searcher is closed; open another one")
        return _ParallelShards(snapshot, self._pool, self._threads - 1)


class _ParallelShards:
    """The open shards of a snapshot, matched side by side; see ``Shards``."""

    def __init__(self, snapshot: Snapshot, pool: ThreadPoolExecutor, helpers: int) -> None:
        self._snapshot = snapshot
        self._pool = pool
        self._helpers = helpers

    def match(self, query: ShardQuery) -> Candidates:
        """The best documents of every shard."""
        run = _Run(self._snapshot, query)
        helpers: list[Future[None]] = []
        with contextlib.suppress(RuntimeError):  # closed since the query began: it goes on alone
            helpers += (self._pool.submit(run.work) for _ in range(min(self._helpers, len(self._snapshot.readers) - 1)))
        run.work()
        for helper in helpers:
            if not helper.cancel():
                helper.result()
        return run.result()

    def word_frequencies(self, names: Sequence[str]) -> npt.NDArray[np.int64]:
        """int64 [t]: documents of all shards that hold each word."""
        return self._snapshot.word_frequencies(names)

    def rescore(
        self, ranked: Sequence[Ranked], ids: npt.NDArray[np.int32], weights: npt.NDArray[np.float32]
    ) -> Sequence[Ranked]:
        """Scores of all stored terms."""
        return self._snapshot.rescore(ranked, ids, weights)

    def fields(self, ranked: Sequence[Ranked], names: Sequence[str]) -> Sequence[Mapping[str, Any]]:
        """Stored fields and attributes."""
        return self._snapshot.fields(ranked, names)


class _Run:
    """One query on its way through the shards: what is left to do, and what was found."""

    def __init__(self, snapshot: Snapshot, query: ShardQuery) -> None:
        self._snapshot = snapshot
        self._query = query
        # The largest is begun first, so that no thread begins it when the others are done.
        self._left = sorted(snapshot.readers, key=lambda number: snapshot.readers[number].shard.manifest.documents)
        self._lock = threading.Lock()
        self._best: list[float] = []
        self._floor = query.floor
        self._done: list[Candidates] = []
        self._error: BaseException | None = None

    def work(self) -> None:
        """Match shard after shard until none is left; errors are kept for ``result``."""
        while (task := self._next()) is not None:
            try:
                found = self._snapshot.match_one(*task)
            except BaseException as error:  # noqa: BLE001 - raised again by result(), in the calling thread
                with self._lock:
                    self._error, self._left = self._error or error, []
                return
            self._add(found)

    def result(self) -> Candidates:
        """What was found; call it when no thread works any more."""
        if self._error is not None:
            raise self._error
        return Candidates.join(self._done)

    def _next(self) -> tuple[int, ShardQuery, float] | None:
        with self._lock:
            if not self._left:
                return None
            if self._query.deadline is not None and time.monotonic() >= self._query.deadline:
                self._left = []
                self._done.append(Candidates([], 0, False, True))
                return None
            return self._left.pop(), self._query, self._floor

    def _add(self, found: Candidates) -> None:
        """Keep what a shard gave, and raise the floor: a document below the k-th best so far can be no hit."""
        k = self._query.k
        with self._lock:
            self._done.append(found)
            if k and self._left:
                self._best = heapq.nlargest(k, [*self._best, *(-row[0] for row in found.ranked)])
                if len(self._best) == k:
                    self._floor = max(self._query.floor, self._best[-1])
