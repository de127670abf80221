"""The shards of one version on the replicas of a cluster, behind the protocol ``Shards``."""

import asyncio
import threading
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from ray.serve.handle import DeploymentHandle

from lsr_prod.search.candidates import Candidates, Ranked
from lsr_prod.search.shard.shard_query import ShardQuery
from lsr_prod.serving.calls import UnavailableError, send
from lsr_prod.serving.versions import Pin

__all__ = ["Groups", "ScatteredShards"]

_T = TypeVar("_T")
_GRACE_S = 0.1  # for a response sent at the deadline to arrive


class Groups:
    """The shard groups of an application, and the event loop that their calls run in. Safe to share between threads."""

    def __init__(self, handles: Sequence[DeploymentHandle[Any]], *, attempts: int, timeout_s: float) -> None:
        """Start the event loop.

        Args:
            handles: one per group, in order.
            attempts: maximum number of times a call is sent when replicas die.
            timeout_s: seconds for a call.
        """
        self.handles = tuple(handles)
        self._attempts = attempts
        self._timeout_s = timeout_s
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="lsr-scatter", daemon=True).start()

    def gather(self, calls: Sequence[Coroutine[Any, Any, _T]]) -> list[_T]:
        """Return the results of the calls, in order; blocks the calling thread, not the event loop."""

        async def run() -> list[_T]:
            return await asyncio.gather(*calls)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result()

    async def call(self, group: int, method: str, *arguments: Any) -> Any:
        """Call a method of a free replica of a group.

        Raises:
            UnavailableError: no replica answered in time, or every replica that received the call died.
            LsrError: the replica refused the call.
        """
        remote = getattr(self.handles[group], method).remote
        what = {"group": group, "method": method}
        try:
            return await send(lambda: remote(*arguments), attempts=self._attempts, timeout_s=self._timeout_s, what=what)
        except TimeoutError as error:
            raise UnavailableError(
                f"shard group {group} did not answer within {self._timeout_s} s; look at its replicas, or raise "
                "serve.timeout_s"
            ) from error

    async def match(self, group: int, pin: Pin, query: ShardQuery) -> Candidates:
        """Return the best documents of a group; without a response before the deadline, an empty partial result."""
        if query.deadline is None:
            found: Candidates = await self.call(group, "match", pin, query)
            return found
        remote, deadline, timeless = self.handles[group].match.remote, query.deadline, replace(query, deadline=None)
        left = deadline - time.monotonic()
        if left > 0:
            try:
                return await send(
                    lambda: remote(pin, timeless, deadline - time.monotonic()),
                    attempts=self._attempts,
                    timeout_s=min(self._timeout_s, left + _GRACE_S),
                    what={"group": group, "method": "match"},
                )
            except TimeoutError:
                pass
        return Candidates([], 0, False, True)


class ScatteredShards:
    """The shards of one version; see ``Shards``. Every call names the version."""

    def __init__(self, groups: Groups, pin: Pin, shards: int) -> None:
        """Read one version.

        Args:
            groups: of the application.
            pin: the version.
            shards: number of shards of the version.
        """
        self._groups = groups
        self._pin = pin
        self._count = len(groups.handles)
        self._used = range(min(shards, self._count))  # groups that have a shard

    def match(self, query: ShardQuery) -> Candidates:
        """Return the best documents of all groups, queried in parallel."""
        found = self._groups.gather([self._groups.match(group, self._pin, query) for group in self._used])
        return Candidates.join(found)

    def word_frequencies(self, names: Sequence[str]) -> npt.NDArray[np.int64]:
        """Return int64 [t]: number of documents of all shards that contain each word."""
        calls = [self._groups.call(group, "word_frequencies", self._pin, list(names)) for group in self._used]
        found: list[npt.NDArray[np.int64]] = self._groups.gather(calls)
        return np.sum(found, axis=0, dtype=np.int64) if found else np.zeros(len(names), np.int64)

    def rescore(
        self, ranked: Sequence[Ranked], ids: npt.NDArray[np.int32], weights: npt.NDArray[np.float32]
    ) -> Sequence[Ranked]:
        """Return scores over all stored terms."""
        by_group = self._by_group(ranked)
        calls = [
            self._groups.call(group, "rescore", self._pin, [ranked[place] for place in places], ids, weights)
            for group, places in by_group.items()
        ]
        return [row for rows in self._groups.gather(calls) for row in rows]

    def fields(self, ranked: Sequence[Ranked], names: Sequence[str]) -> Sequence[Mapping[str, Any]]:
        """Return stored fields and attributes."""
        by_group = self._by_group(ranked)
        calls = [
            self._groups.call(group, "fields", self._pin, [ranked[place] for place in places], list(names))
            for group, places in by_group.items()
        ]
        values: list[Mapping[str, Any]] = [{}] * len(ranked)
        for places, found in zip(by_group.values(), self._groups.gather(calls), strict=True):
            for place, value in zip(places, found, strict=True):
                values[place] = value
        return values

    def _by_group(self, ranked: Sequence[Ranked]) -> dict[int, list[int]]:
        """Return positions in ``ranked`` by the group of the document."""
        places: dict[int, list[int]] = {}
        for place, (_, _, shard, _, _) in enumerate(ranked):
            places.setdefault(shard % self._count, []).append(place)
        return places
