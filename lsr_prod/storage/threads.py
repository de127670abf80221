"""Calls that wait for a store, in a pool of threads: results in the order of the arguments."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["in_threads"]

_THREADS = 32  # a call waits about 20 ms for an object store

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_threads(work: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Call ``work`` with every item and return the results.

    Raises:
        Exception: the first error of a call, in the order of the items; calls that have not begun are not made.
    """
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="lsr-store") as pool:
        running = [pool.submit(work, item) for item in items]
        try:
            return [one.result() for one in running]
        finally:
            pool.shutdown(cancel_futures=True)
