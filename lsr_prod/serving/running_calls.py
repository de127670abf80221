"""Calls that run in the threads of a replica, and whether one of them hangs."""

import itertools
import time
from collections.abc import Callable
from typing import TypeVar

HUNG = 4  # a call that runs for as many timeouts hangs

_T = TypeVar("_T")


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
