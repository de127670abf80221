"""Admission of requests: those that can be answered soon run or wait, further ones are refused."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lsr_prod.serving.calls import OverloadedError

__all__ = ["RETRY_AFTER_S", "Admission"]

RETRY_AFTER_S = 1  # a full queue of searches is worked off within a second


class Admission:
    """Counts the admitted requests of one router. Use it from one event loop.

    Attributes:
        admitted: requests that run or wait.
        limit: maximum number of them.
    """

    def __init__(self, limit: int, wait_s: Callable[[], float] = lambda: 0.0, most_s: float = 1.0) -> None:
        """Admit at most ``limit`` requests at the same time, and none while it would wait too long.

        Args:
            limit: maximum number of requests that run or wait.
            wait_s: returns the seconds that a request would wait now.
            most_s: maximum of them.
        """
        self.admitted = 0
        self.limit = limit
        self._wait_s = wait_s
        self._most_s = most_s

    @contextmanager
    def admit(self) -> Iterator[None]:
        """Count a request until the end of the block.

        Raises:
            OverloadedError: ``limit`` requests are admitted, or the request would wait too long.
        """
        if self.admitted >= self.limit:
            raise OverloadedError(
                f"{self.admitted} requests run or wait, and serve.concurrency + serve.queue is {self.limit}; try again "
                f"after {RETRY_AFTER_S} s, or add routers and replicas"
            )
        if (wait_s := self._wait_s()) > self._most_s:
            raise OverloadedError(
                f"the request would wait for {wait_s:.1f} s, and serve.queue_s is {self._most_s:g}; try again after "
                f"{RETRY_AFTER_S} s, or add routers and replicas"
            )
        self.admitted += 1
        try:
            yield
        finally:
            self.admitted -= 1
