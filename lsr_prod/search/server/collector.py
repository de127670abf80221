"""Requests that wait for a thread: a free thread takes several of them at once."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

_T = TypeVar("_T")
_R = TypeVar("_R")
_MOST = 64  # requests that a thread takes at once
_BATCH_S = 0.02  # for all requests of a batch: those of slow searches are not worth collecting
_SMALL_S = 0.003  # of which most is Python
_WEIGHT = 0.2  # of the newest batch in the average


class Collector(Generic[_T, _R]):
    """Runs requests in threads. Use it from one event loop.

    Each handover between the event loop and a thread costs as much as a small search. While no thread is free,
    requests are collected, and the next free thread takes its share of them. Small searches run in one thread: most of
    their time is Python, which runs in one thread at a time, and several of them and the event loop hinder each other.
    Other requests never wait while a thread is free.
    """

    def __init__(
        self, run: Callable[[Sequence[_T]], Sequence[_R]], threads: int, name: str, *, small_s: float = _SMALL_S
    ) -> None:
        """Create the threads."""
        self._run = run
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._threads, self._busy = threads, 0
        self._small_s = small_s
        self._waiting: deque[tuple[_T, asyncio.Future[_R]]] = deque()
        self._scheduled = False
        self._each_s = 0.0

    async def run(self, request: _T) -> _R:
        """Return the result of a request."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_R] = loop.create_future()
        self._waiting.append((request, future))
        if self._busy < self._allowed() and not self._scheduled:
            self._scheduled = True
            loop.call_soon(self._start, loop)  # with the requests that arrive at the same time
        return await future

    def close(self) -> None:
        """Wait for the threads; nothing may be run later."""
        self._pool.shutdown()

    def _allowed(self) -> int:
        return 1 if self._each_s < self._small_s else self._threads

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._scheduled = False
        while self._waiting and (free := self._allowed() - self._busy) > 0:
            share = -(-len(self._waiting) // free)
            soon = int(_BATCH_S / self._each_s) if self._each_s else 1
            batch = [self._waiting.popleft() for _ in range(max(1, min(share, soon, _MOST)))]
            self._busy += 1
            self._pool.submit(self._work, loop, batch, time.monotonic())

    def _work(
        self, loop: asyncio.AbstractEventLoop, batch: list[tuple[_T, asyncio.Future[_R]]], started: float
    ) -> None:
        results: Sequence[_R] | BaseException
        try:
            results = self._run([request for request, _ in batch])
        except BaseException as error:  # noqa: BLE001 - it belongs to those who wait
            results = error
        loop.call_soon_threadsafe(self._end, loop, batch, results, started)

    def _end(
        self,
        loop: asyncio.AbstractEventLoop,
        batch: list[tuple[_T, asyncio.Future[_R]]],
        results: Sequence[_R] | BaseException,
        started: float,
    ) -> None:
        each_s = (time.monotonic() - started) / len(batch)
        self._each_s += _WEIGHT * (each_s - self._each_s) if self._each_s else each_s
        self._busy -= 1
        self._start(loop)
        for place, (_, future) in enumerate(batch):
            if future.done():  # the client left
                continue
            if isinstance(results, BaseException):
                future.set_exception(results)
            else:
                future.set_result(results[place])
