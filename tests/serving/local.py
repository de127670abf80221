"""Shard groups in this process: what stands behind a handle, without a cluster."""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from time import monotonic
from types import SimpleNamespace
from typing import Any

from lsr_prod.search.explain import explain_parts
from lsr_prod.serving.replica import Versions

_POOL = ThreadPoolExecutor(8)


def _follow(versions: Versions) -> None:
    """Open the current version, as a replica does every few seconds."""
    versions.follow()


class LocalReplicas:
    """Replicas of a group that take calls in turn; ``before`` may raise, or wait, in place of any of them."""

    def __init__(
        self,
        index: str | Path,
        group: int,
        groups: int,
        before: Callable[[int, str], Any] = lambda *_: None,
        count: int = 2,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self.replicas = [Versions(index, group, groups, options) for _ in range(count)]
        self.calls = 0
        self.before = before
        self.follows: Callable[[Versions], str | None] = _follow
        self.call, self.state = SimpleNamespace(remote=self._call), SimpleNamespace(remote=self._state)

        self.together: list[int] = []
        self.run_calls = SimpleNamespace(remote=self._run_calls)

    async def _run_calls(self, calls: list[tuple[Any, ...]]) -> list[Any]:
        self.together.append(len(calls))
        return await asyncio.gather(*(self._call(*arguments) for arguments in calls), return_exceptions=True)

    async def _next(self, method: str) -> Versions:
        number, self.calls = self.calls, self.calls + (method != "state")  # probes do not count
        waited = self.before(number, method)
        if waited is not None:
            await waited
        return self.replicas[number % len(self.replicas)]

    async def _state(self) -> dict[str, Any]:
        versions = await self._next("state")
        problem = self.follows(versions)
        return {"versions": versions.held, "problem": problem}

    async def _call(self, pin: Any, left_s: float | None, method: str, *arguments: Any) -> Any:
        versions = await self._next(method)
        if left_s is not None:
            arguments = (replace(arguments[0], deadline=monotonic() + left_s), *arguments[1:])

        def work() -> Any:
            snapshot = versions.get(pin)
            return explain_parts(snapshot, *arguments) if method == "explain" else getattr(snapshot, method)(*arguments)

        return await asyncio.get_running_loop().run_in_executor(_POOL, work)
