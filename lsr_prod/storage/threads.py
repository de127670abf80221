"""Calls that wait for a store, in a pool of threads: results in the order of the arguments."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

_THREADS = 32  # a call waits about 20 ms for an object store
_HELD = 4096  # calls that are queued at a time: one takes 2 KB

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_threads(work: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Call ``work`` with every item and return the results."""
    results: list[Result] = []
    left = iter(items)
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="lsr-store") as pool:
        while some := list(islice(left, _HELD)):
            results += pool.map(work, some)
    return results
