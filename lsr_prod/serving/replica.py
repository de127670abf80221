"""Shard replica deployment: match, rescore and read fields in the version that a call names."""

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from lsr_prod.search.candidates import Candidates, Collected, CollectPlan, Ranked
from lsr_prod.search.explain import explain_parts
from lsr_prod.search.follower import Follower
from lsr_prod.search.hybrid import WeighedWords
from lsr_prod.search.query.request import Hybrid
from lsr_prod.search.query.sparse_query import SparseQuery
from lsr_prod.search.result import Explanation
from lsr_prod.search.shard.shard_query import ShardQuery
from lsr_prod.search.snapshot import Snapshot
from lsr_prod.serving.loopback import keep_internal_port_on_loopback
from lsr_prod.serving.running_calls import RunningCalls
from lsr_prod.serving.versions import Pin, Versions
from lsr_prod.storage.signatures import trust

_T = TypeVar("_T")


class ShardReplica:
    """One replica of a shard group. Its calls only read, so the router may send each call again."""

    def __init__(
        self,
        index: str,
        group: int,
        groups: int,
        *,
        threads: int,
        poll_seconds: float,
        hung_s: float = 120,
        options: Mapping[str, str] | None = None,
        trusted_keys: str | None = None,
    ) -> None:
        """Open the current version and compile the kernels."""
        keep_internal_port_on_loopback()
        trust(trusted_keys)
        self._versions = Versions(index, group, groups, options)
        self._calls = RunningCalls(hung_s)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="lsr-match")
        _compile(self._versions.last)
        self._follower = Follower(self._versions.follow, poll_seconds)

    async def match(self, pin: Pin, query: ShardQuery, left_s: float | None = None) -> Candidates:
        """Return the best documents of the shards of the group; see ``Shards``."""
        return await self._run(lambda: self._versions.get(pin).match(_timed(query, left_s)))

    async def collect(self, pin: Pin, query: ShardQuery, plan: CollectPlan, left_s: float | None = None) -> Collected:
        """Enumerate all matches in the shards of the group; the arguments are those of ``match`` and of ``Shards``."""
        return await self._run(lambda: self._versions.get(pin).collect(_timed(query, left_s), plan))

    async def word_frequencies(self, pin: Pin, names: Sequence[str]) -> npt.NDArray[np.int64]:
        """Return the number of documents of the group that contain each word; see ``Shards``."""
        return await self._run(lambda: self._versions.get(pin).word_frequencies(names))

    async def rescore(
        self, pin: Pin, ranked: Sequence[Ranked], ids: npt.NDArray[np.int32], weights: npt.NDArray[np.float32]
    ) -> list[Ranked]:
        """Return scores over all stored terms; see ``Shards``."""
        return await self._run(lambda: self._versions.get(pin).rescore(ranked, ids, weights))

    async def fields(self, pin: Pin, ranked: Sequence[Ranked], names: Sequence[str]) -> list[Mapping[str, Any]]:
        """Return stored fields and attributes; see ``Shards``."""
        return await self._run(lambda: self._versions.get(pin).fields(ranked, names))

    async def explain(
        self, pin: Pin, query: SparseQuery, doc_id: str, hybrid: Hybrid | None, words: WeighedWords | None
    ) -> Explanation | None:
        """Explain the score of a document without its ranks; None if another group has the document, or none."""
        return await self._run(lambda: explain_parts(query, self._versions.get(pin), doc_id, hybrid, words))

    async def run_calls(self, calls: Sequence[tuple[str, tuple[Any, ...]]]) -> list[Any]:
        """Return the results of calls that a router sends together; that of a failed one is its error."""
        return await asyncio.gather(
            *(getattr(self, method)(*arguments) for method, arguments in calls), return_exceptions=True
        )

    async def state(self) -> dict[str, Any]:
        """Return process id, open versions and the last failure to open a publication, for operators."""
        return {"pid": os.getpid(), "versions": self._versions.held, "problem": self._follower.problem}

    def check_health(self) -> None:
        """Fail if this process has to be replaced; called by Ray Serve."""
        self._follower.check_alive()
        self._calls.check_progress()

    async def _run(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._calls.run, work)


def _timed(query: ShardQuery, left_s: float | None) -> ShardQuery:
    """Return the query with a deadline on the clock of this machine."""
    return query if left_s is None else replace(query, deadline=time.monotonic() + left_s)


def _compile(snapshot: Snapshot) -> None:
    """Run a query through each kernel, so that the first call does not wait for compilation."""
    anything = ShardQuery(np.zeros(1, np.int32), np.ones(1, np.float32), np.ones(1, np.uint8), 1, 1)
    snapshot.match(anything)
    filled = [number for number, reader in snapshot.readers.items() if reader.shard.manifest.documents]
    documents: list[Ranked] = [(0.0, "", number, 0, 0) for number in filled]
    snapshot.rescore(documents, anything.ids, anything.weights)
