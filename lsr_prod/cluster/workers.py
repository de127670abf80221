"""Run the tasks of a job: small work in this process, larger work on Ray, which is started when first needed."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, Self, TypeVar

from lsr_prod.cluster.session import ray_session
from lsr_prod.config import RaySettings

_SMALL = 32_000_000  # bytes of parts; reading and indexing them takes less time than starting a local Ray
_INLINE = 100_000  # bytes of an argument that Ray sends with the call

Result = TypeVar("Result")


class Workers:
    """A context manager that ends the Ray session if it started one.

    Args:
        ray: settings of Ray; None: all work is done in this process.
        check: called before the first task on Ray; raises if nodes lack what tasks need.
    """

    def __init__(self, ray: RaySettings | None, *, check: Callable[[], None] | None = None) -> None:
        self._settings = ray
        self._check = check
        self._session = ExitStack()
        self._connected = "ray" in sys.modules and bool(sys.modules["ray"].is_initialized())

    def run(
        self, function: Callable[..., Result], items: Sequence[tuple[Any, ...]], *, size: int
    ) -> Iterator[tuple[int, Result]]:
        """Call a function with every tuple of arguments, as ``run_tasks`` does; ``size``: bytes that all calls read."""
        if not items:
            return
        task = function.__name__.strip("_").replace("_", " ")
        if self._settings is None or (size <= _SMALL and not self._connected):
            yield from run_calls(function, items, task=task, on_ray=False)
            return
        if not self._connected:
            self._session.enter_context(ray_session(self._settings))
            self._connected = True
        if self._check is not None:
            self._check()
            self._check = None
        yield from run_calls(function, _store_shared(items), task=task, on_ray=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()


IN_PROCESS = Workers(None)


def run_calls(
    function: Callable[..., Result], items: Sequence[tuple[Any, ...]], *, task: str, on_ray: bool
) -> Iterator[tuple[int, Result]]:
    """Call a function with every tuple of arguments, as ``run_tasks`` does, on Ray or in this process."""
    if not on_ray:
        return ((number, function(*item)) for number, item in enumerate(items))
    from lsr_prod.cluster.tasks import run_tasks  # imports Ray

    return run_tasks(function, items, task=task)


def _store_shared(items: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Store large arguments of several calls, such as all ids of a night, once; Ray passes on their values."""
    import ray

    arguments = {id(argument): argument for item in items for argument in item}
    uses = Counter(id(argument) for item in items for argument in item)
    stored = {
        number: ray.put(argument)
        for number, argument in arguments.items()
        if uses[number] > 1 and sys.getsizeof(argument) > _INLINE
    }
    return [tuple(stored.get(id(argument), argument) for argument in item) for item in items]
