"""Admission of requests: a bounded number runs or waits, further ones are refused at once."""

from collections.abc import Iterator
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

    def __init__(self, limit: int) -> None:
        """Admit at most ``limit`` requests at the same time."""
        self.admitted = 0
        self.limit = limit

    @contextmanager
    def admit(self) -> Iterator[None]:
        """Count a request until the end of the block.

        Raises:
            OverloadedError: ``limit`` requests are admitted.
        """
        if self.admitted >= self.limit:
            raise OverloadedError(
                f"{self.admitted} requests run or wait, and serve.concurrency + serve.queue is {self.limit}; try again "
                f"after {RETRY_AFTER_S} s, or add routers and replicas"
            )
        self.admitted += 1
        try:
            yield
        finally:
            self.admitted -= 1
