"""Shard replica deployment: match, rescore and read fields in the version that a call names."""

import asyncio
import itertools
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from lsr_prod.errors import ArtifactError, PublicationError
from lsr_prod.search.candidates import Candidates, Collected, CollectPlan, Ranked
from lsr_prod.search.explain import explain_parts
from lsr_prod.search.follower import Follower
from lsr_prod.search.hybrid import WeighedWords
from lsr_prod.search.location import locate
from lsr_prod.search.open_index import open_version
from lsr_prod.search.query.request import Hybrid
from lsr_prod.search.query.sparse_query import SparseQuery
from lsr_prod.search.result import Explanation
from lsr_prod.search.shard.postings import ShardQuery
from lsr_prod.search.snapshot import Snapshot
from lsr_prod.serving.haproxy import keep_internal_port_on_loopback
from lsr_prod.storage.formats.publication import Publication
from lsr_prod.storage.signatures import trust

_HELD = 2  # the current version, and the previous one for queries that started with it
_MANY = 1 << 31
HUNG = 4  # a call that runs for as many timeouts hangs
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Pin:
    """The version that a query reads on all replicas."""

    publication: int  # number of a publication of the version
    version: str  # its sha256


def shards_of_group(group: int, groups: int) -> range:
    """Return the shard numbers of a group, for any number of shards."""
    return range(group, _MANY, groups)


class Versions:
    """Open snapshots of one shard group. Safe to share between threads."""

    def __init__(self, index: str | Path, group: int, groups: int, options: Mapping[str, str] | None = None) -> None:
        self._index = locate(index, None, None, options)
        self._shards = shards_of_group(group, groups)
        self._held: OrderedDict[str, Snapshot] = OrderedDict()
        self._lock = threading.Lock()
        self._opening = threading.Lock()
        self.follow()

    def get(self, pin: Pin) -> Snapshot:
        """Return the version of a pin; open it if it is published, in place of the least recently used version.

        Queries that read the replaced version finish undisturbed.
        """
        return self._find(pin.version) or self._open(self._index.read_publication(pin.publication), pin.version)

    def follow(self) -> bool:
        """Open the version of the current publication; return False if it was open."""
        while True:
            latest = self._index.current_publication()
            with self._lock:
                if latest.version in self._held:
                    return False
            try:
                self._open(latest, latest.version)
            except ArtifactError:
                if self._index.current_publication().number == latest.number:
                    raise
                continue  # superseded and deleted before it was open
            return True

    @property
    def held(self) -> list[str]:
        """Digests of the open versions, the most recently used last."""
        with self._lock:
            return list(self._held)

    @property
    def last(self) -> Snapshot:
        """The most recently used version."""
        with self._lock:
            return next(reversed(self._held.values()))

    def _find(self, version: str) -> Snapshot | None:
        with self._lock:
            found = self._held.get(version)
            if found is not None:
                self._held.move_to_end(version)
            return found

    def _open(self, publication: Publication, version: str) -> Snapshot:
        if publication.version != version:
            raise PublicationError(
                f"publication {publication.number} of the index is version {publication.version[:12]}, not "
                f"{version[:12]}; router and replicas must serve the same index"
            )
        with self._opening:  # one thread opens, the others wait
            found = self._find(version)
            if found is not None:
                return found
            before = self.last if self._held else None
            opened = open_version(self._index, publication, "lazy", before=before, shards=self._shards)
            with self._lock:
                self._held[version] = opened
                while len(self._held) > _HELD:
                    self._held.popitem(last=False)
            return opened


class RunningCalls:
    """Start times of running calls. Safe to share between threads."""

    def __init__(self, hung_s: float) -> None:
        """Consider a call hung after ``hung_s`` seconds."""
        self._hung_s = hung_s
        self._numbers = itertools.count()
        self._started: dict[int, float] = {}

    def run(self, work: Callable[[], _T]) -> _T:
        """Run a call in this thread and return its result."""
        number = next(self._numbers)
        self._started[number] = time.monotonic()
        try:
            return work()
        finally:
            del self._started[number]

    def check_progress(self) -> None:
        """Raise ``RuntimeError`` if a call hangs: its thread is lost until the process is replaced."""
        oldest = min(list(self._started.values()), default=None)
        if oldest is not None and (age := time.monotonic() - oldest) > self._hung_s:
            raise RuntimeError(f"a call has been running for {age:.0f} s, more than {self._hung_s:g}")


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
