"""Admission of requests by a server: those that can be answered soon run or wait, further ones are refused."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

RETRY_AFTER_S = 1  # a full queue of searches is worked off within a second
_PAUSE_S = 0.2  # before a refusal
_WINDOW_S, _WINDOW = 0.25, 8  # busy seconds and answers at least that an estimate is made of


class Admission:
    """Counts the admitted requests of one server. Use it from one event loop.

    Clients that ask again at once are answered best when all of them wait. So what bounds the queue is the time in it,
    estimated from the time between answers, and the number of requests only bounds memory.

    Attributes:
        admitted: requests that run or wait.
        limit: maximum number of them.
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
        """Count a request until the end of the block."""
        began = time.monotonic()
        self.admitted += 1
        try:
            yield
        finally:
            self.admitted -= 1
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
