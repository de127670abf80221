"""Admission and threads of a server of searches.

Requests that can be answered soon run or wait, further ones are refused. A free thread takes several of those that wait
at once.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

_T = TypeVar("_T")
_R = TypeVar("_R")

RETRY_AFTER_S = 1  # a full queue of searches is worked off within a second
_PAUSE_S = 0.2  # before a refusal
_WINDOW_S, _WINDOW = 0.25, 8  # busy seconds and answers at least that an estimate is made of

_MOST = 64  # requests that a thread takes at once
_BATCH_S = 0.02  # for all requests of a batch: those of slow searches are not worth collecting
_SMALL_S = 0.003  # of which most is Python
_WEIGHT = 0.2  # of the newest batch in the average


class Admission:
    """Counts the admitted requests of one server. Use it from one event loop.

    Clients that ask again at once are answered best when all of them wait. So what bounds the queue is the time in it,
    estimated from the time between answers, and the number of requests only bounds memory.
    """

    def __init__(self, limit: int, most_s: float) -> None:
        """Admit at most ``limit`` requests at the same time, and none that would wait for more than ``most_s``."""
        self.admitted = 0
        self.limit = limit
        self._most_s = most_s
        self._each_s = 0.0  # busy time per answer
        self._busy_s, self._answers = 0.0, 0  # since the last estimate
        self._last_end = 0.0
        self._paused = 0

    def refusal(self) -> str | None:
        """Return why a request that arrives now is refused; None: it is not."""
        if self.admitted >= self.limit:
            return f"{self.admitted} requests run or wait, which is the limit"
        if (wait_s := self.admitted * self._each_s) > self._most_s:
            return f"the request would wait for {wait_s:.1f} s, and the limit is {self._most_s:g}"
        return None

    @contextmanager
    def admit(self) -> Iterator[None]:
        """Count a request until the end of the block; one that is cancelled there got no answer."""
        began: float | None = time.monotonic()
        self.admitted += 1
        try:
            yield
        except asyncio.CancelledError:
            began = None
            raise
        finally:
            self.admitted -= 1
            if began is not None:
                self._count(began)

    def _count(self, began: float) -> None:
        now = time.monotonic()
        self._busy_s += now - max(began, self._last_end)
        self._answers += 1
        self._last_end = now
        if self._busy_s >= _WINDOW_S and self._answers >= _WINDOW:
            self._each_s = self._busy_s / self._answers
            self._busy_s, self._answers = 0.0, 0

    async def pause(self) -> None:
        """Hold a refusal for a moment: a client that asks again at once would take time from answers."""
        if self._paused < self.limit:
            self._paused += 1
            try:
                await asyncio.sleep(_PAUSE_S)
            finally:
                self._paused -= 1


class Collector(Generic[_T, _R]):
    """Runs requests in threads. Use it from one event loop.

    Each handover between the event loop and a thread costs as much as a small search. While no thread is free,
    requests are collected, and the next free thread takes its share of them. Small searches run in one thread: most of
    their time is Python, which runs in one thread at a time, and several of them and the event loop hinder each other.
    Other requests never wait while a thread is free.
    """

    def __init__(self, run: Callable[[_T], _R], threads: int, name: str, *, small_s: float = _SMALL_S) -> None:
        """Create the threads."""
        self._run = run
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._threads, self._busy = threads, 0
        self._small_s = small_s
        self._waiting: OrderedDict[asyncio.Future[_R], _T] = OrderedDict()
        self._scheduled = False
        self._each_s = 0.0

    async def run(self, request: _T) -> _R:
        """Return the result of a request."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_R] = loop.create_future()
        self._waiting[future] = request
        future.add_done_callback(lambda done: self._waiting.pop(done, None))  # if the client left
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
            batch = [self._waiting.popitem(last=False) for _ in range(max(1, min(share, soon, _MOST)))]
            self._busy += 1
            self._pool.submit(self._work, loop, batch, time.monotonic())

    def _work(
        self, loop: asyncio.AbstractEventLoop, batch: list[tuple[asyncio.Future[_R], _T]], started: float
    ) -> None:
        ends: list[tuple[Callable[[Any], None], Any]] = []
        for future, request in batch:
            try:
                ends.append((future.set_result, None if future.done() else self._run(request)))
            except BaseException as error:  # noqa: BLE001 - it belongs to the one who waits
                ends.append((future.set_exception, error))
        loop.call_soon_threadsafe(self._end, loop, batch, ends, started)

    def _end(
        self,
        loop: asyncio.AbstractEventLoop,
        batch: list[tuple[asyncio.Future[_R], _T]],
        ends: Sequence[tuple[Callable[[Any], None], Any]],
        started: float,
    ) -> None:
        each_s = (time.monotonic() - started) / len(batch)
        self._each_s += _WEIGHT * (each_s - self._each_s) if self._each_s else each_s
        self._busy -= 1
        self._start(loop)
        for (future, _), (end, value) in zip(batch, ends, strict=True):
            if not future.done():  # else the client left
                end(value)
