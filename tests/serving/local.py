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
        for method in ("match", "collect", "word_frequencies", "rescore", "fields", "explain", "state"):
            setattr(self, method, SimpleNamespace(remote=self._remote(method)))

        self.together: list[int] = []
        self.run_calls = SimpleNamespace(remote=self._run_calls)

    async def _run_calls(self, calls: list[tuple[str, tuple[Any, ...]]]) -> list[Any]:
        self.together.append(len(calls))
        sent = [getattr(self, method).remote(*arguments) for method, arguments in calls]
        return await asyncio.gather(*sent, return_exceptions=True)

    def _remote(self, method: str) -> Callable[..., Any]:
        async def call(pin: Any = None, *arguments: Any) -> Any:
            number, self.calls = self.calls, self.calls + (method != "state")  # probes do not count
            waited = self.before(number, method)
            if waited is not None:
                await waited
            versions = self.replicas[number % len(self.replicas)]
            if method == "state":
                problem = self.follows(versions)
                return {"versions": versions.held, "problem": problem}
            if method == "match":
                query, left = (*arguments, None)[:2]
                arguments = (query if left is None else replace(query, deadline=monotonic() + left),)
            if method == "collect":
                query, plan, left = (*arguments, None)[:3]
                arguments = (query if left is None else replace(query, deadline=monotonic() + left), plan)
            if method == "explain":
                query, *rest = arguments
                work = lambda: explain_parts(query, versions.get(pin), *rest)  # noqa: E731
            else:
                work = lambda: getattr(versions.get(pin), method)(*arguments)  # noqa: E731
            return await asyncio.get_running_loop().run_in_executor(_POOL, work)

        return call
