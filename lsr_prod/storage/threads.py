"""Calls that wait for a store, in a pool of threads: results in the order of the arguments."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import islice
from typing import TypeVar

_THREADS = 32  # a call waits about 20 ms for an object store
_HELD = 4096  # calls that are queued at a time: one takes 2 KB

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_threads(work: Callable[[Item], Result], items: Iterable[Item], threads: int = _THREADS) -> list[Result]:
    """Call ``work`` with every item and return the results; after an error no further call is started."""
    results: list[Result] = []
    left = iter(items)
    with ThreadPoolExecutor(threads, thread_name_prefix="lsr-store") as pool:
        while calls := [pool.submit(work, item) for item in islice(left, _HELD)]:
            try:
                for call in as_completed(calls):
                    call.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
            results += [call.result() for call in calls]
    return results
