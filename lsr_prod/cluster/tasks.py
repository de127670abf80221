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

    Args:
        function: a stateless function at module level.
        items: arguments of each call; arguments and results have to be picklable.
        task: what a call does, for messages, for example "building a shard".
        cpus: cores that a call reserves.
        retries: how often a call is repeated whose process or node died.

    Yields:
        Number and result of each call.

    Raises:
        LsrError: the error that a call raised deliberately.
        WorkerError: any other error of a call.
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
