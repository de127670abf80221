"""Run a function on Ray with many arguments, results in the order of completion."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import ray

from lsr_prod.cluster.errors import worker_errors

Result = TypeVar("Result")


def run_tasks(
    function: Callable[..., Result],
    items: Sequence[tuple[Any, ...]],
    *,
    task: str,
    cpus: float = 1,
    retries: int = 3,
) -> Iterator[tuple[int, Result]]:
    """Call a function with every tuple of arguments; needs a connection to Ray.

    If a call fails, or the caller stops iterating, unfinished calls are cancelled.

    Yields:
        Number and result of each call.
    """
    if not items:
        return
    remote: Any = ray.remote(num_cpus=cpus, max_retries=retries)(function)
    running = {remote.remote(*item): number for number, item in enumerate(items)}
    try:
        while running:
            ray.wait(list(running), num_returns=1)
            ready, _ = ray.wait(list(running), num_returns=len(running), timeout=0)  # all of them: a look costs time
            for done in ready:
                number = running.pop(done)
                with worker_errors(task):
                    result = ray.get(done)
                yield number, result
    finally:
        for unfinished in running:
            ray.cancel(unfinished)
