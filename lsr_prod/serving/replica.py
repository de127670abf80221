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

from lsr_prod.config import ServeSettings
from lsr_prod.errors import ArtifactError, PublicationError
from lsr_prod.search import candidates, explain, follower, index_snapshot, open_index
from lsr_prod.search.shard.postings import ShardQuery
from lsr_prod.serving.haproxy import keep_internal_port_on_loopback
from lsr_prod.storage import publications, signatures
from lsr_prod.storage.formats.index_format import Publication

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
        self._index = open_index.locate(index, None, None, options)
        self._shards = shards_of_group(group, groups)
        self._held: OrderedDict[str, index_snapshot.Snapshot] = OrderedDict()
        self._newest = (0, "")  # number and version of the newest publication that is known
        self._damaged: set[str] = set()
        self._lock = threading.Lock()
        self._opening = threading.Lock()
        self.follow()

    def get(self, pin: Pin) -> index_snapshot.Snapshot:
        """Return the version of a pin; open it if it is published, in place of the least recently used earlier version.

        The newest version stays open: routers change to it when all replicas have it, whatever they read until then.
        Queries that read the replaced version finish undisturbed.
        """
        found = self._find(pin.version)
        return found or self._open(publications.read_publication(self._index.store, pin.publication), pin.version)

    def follow(self) -> bool:
        """Open the version of the current publication, again if it is damaged; return False if it was open."""
        while True:
            latest = publications.current_publication(self._index.store)
            with self._lock:
                self._newest = latest.number, latest.version
                if latest.version in self._held and latest.version not in self._damaged:
                    return False
            try:
                self._open(latest, latest.version)
            except ArtifactError:
                if publications.current_publication(self._index.store).number == latest.number:
                    raise
                continue  # superseded and deleted before it was open
            return True

    def report_damage(self, version: str) -> None:
        """Let ``follow`` open a version once again, with the damaged files of the cache fetched again."""
        if self._index.cache is not None:
            self._damaged.add(version)

    @property
    def held(self) -> list[str]:
        """Digests of the open versions, the most recently used last."""
        with self._lock:
            return list(self._held)

    @property
    def last(self) -> index_snapshot.Snapshot:
        """The most recently used version."""
        with self._lock:
            return next(reversed(self._held.values()))

    def _find(self, version: str) -> index_snapshot.Snapshot | None:
        with self._lock:
            found = self._held.get(version)
            if found is not None:
                self._held.move_to_end(version)
            return found

    def _open(self, publication: Publication, version: str) -> index_snapshot.Snapshot:
        if publication.version != version:
            raise PublicationError(
                f"publication {publication.number} of the index is version {publication.version[:12]}, not "
                f"{version[:12]}; router and replicas must serve the same index"
            )
        with self._opening:  # one thread opens, the others wait
            found, repair = self._find(version), version in self._damaged
            self._damaged.discard(version)
            if found is not None and not repair:
                return found
            before = self.last if self._held and not repair else None
            opened = open_index.open_version(
                self._index, publication, "lazy", before=before, shards=self._shards, repair=repair
            )
            with self._lock:
                self._held[version] = opened
                self._newest = max(self._newest, (publication.number, version))
                while len(self._held) > _HELD:
                    del self._held[next(one for one in self._held if one != self._newest[1])]
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
        group: int,
        *,
        settings: ServeSettings,
        options: Mapping[str, str] | None = None,
        trusted_keys: str | None = None,
    ) -> None:
        """Open the current version and compile the kernels."""
        keep_internal_port_on_loopback()
        signatures.trust(trusted_keys)
        self._versions = Versions(settings.index, group, settings.shard_groups, options)
        self._calls = RunningCalls(HUNG * settings.timeout_s)
        self._pool = ThreadPoolExecutor(settings.threads, thread_name_prefix="lsr-match")
        _compile(self._versions.last)
        self._follower = follower.Follower(self._versions.follow, settings.poll_seconds)

    async def call(self, pin: Pin, left_s: float | None, method: str, *arguments: Any) -> Any:
        """Return the result of a method of ``Shards``, or of ``explain_parts``, for the shards of the group.

        With ``left_s``, the first argument is a query, whose deadline is so many seconds from now.
        """
        deadline = None if left_s is None else time.monotonic() + left_s
        rest = arguments if deadline is None else (replace(arguments[0], deadline=deadline), *arguments[1:])

        def work() -> Any:
            snapshot = self._versions.get(pin)
            try:
                explains = method == "explain"
                return explain.explain_parts(snapshot, *rest) if explains else getattr(snapshot, method)(*rest)
            except ArtifactError:
                self._versions.report_damage(pin.version)
                raise

        return await asyncio.get_running_loop().run_in_executor(self._pool, self._calls.run, work)

    async def run_calls(self, calls: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Return the results of calls that a router sends together; that of a failed one is its error."""
        return await asyncio.gather(*(self.call(*arguments) for arguments in calls), return_exceptions=True)

    async def state(self) -> dict[str, Any]:
        """Return process id, open versions and the last failure to open a publication, for operators."""
        return {"pid": os.getpid(), "versions": self._versions.held, "problem": self._follower.problem}

    def check_health(self) -> None:
        """Fail if this process has to be replaced; called by Ray Serve."""
        self._follower.check_alive()
        self._calls.check_progress()


def _compile(snapshot: index_snapshot.Snapshot) -> None:
    """Run a query through each kernel, so that the first call does not wait for compilation."""
    anything = ShardQuery(np.zeros(1, np.int32), np.ones(1, np.float32), np.ones(1, np.uint8), 1, 1)
    snapshot.match(anything)
    filled = [number for number, reader in snapshot.readers.items() if reader.shard.manifest.documents]
    documents: list[candidates.Ranked] = [(0.0, "", number, 0, 0) for number in filled]
    snapshot.rescore(documents, anything.ids, anything.weights)
