"""Calls to the replicas of one shard group; those that wait travel together."""

import asyncio
from collections.abc import Awaitable
from typing import Any

from ray.serve.handle import DeploymentHandle

_MOST_S = 0.002  # that a call waits for others
_MOST = 64  # calls that travel together


class GroupCalls:
    """Sends a call at once if none is on its way, else with those that wait until one returns. Use it from one loop.

    A call to a replica costs more than a small search. A call that hangs delays no other one by more than 2 ms.
    """

    def __init__(self, handle: DeploymentHandle[Any]) -> None:
        """Send calls to the deployment of a group."""
        self._handle = handle
        self._flying = 0
        self._waiting: list[tuple[str, tuple[Any, ...], asyncio.Future[Any]]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._sent: set[asyncio.Task[None]] = set()

    async def call(self, method: str, *arguments: Any) -> Any:
        """Return the result of a call of any replica."""
        if not self._flying:
            return await self._fly(getattr(self._handle, method).remote(*arguments))
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._waiting.append((method, arguments, future))
        if self._timer is None:
            self._timer = loop.call_later(_MOST_S, self._flush)
        return await future

    async def _fly(self, response: Awaitable[Any]) -> Any:
        self._flying += 1
        try:
            return await response
        finally:
            self._flying -= 1
            self._flush()

    def _flush(self) -> None:
        """Send the calls that wait, except those whose caller gave up."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting = [one for one in self._waiting if not one[2].done()]
        self._waiting.clear()
        for start in range(0, len(waiting), _MOST):
            task = asyncio.get_running_loop().create_task(self._send(waiting[start : start + _MOST]))
            self._sent.add(task)
            task.add_done_callback(self._sent.discard)

    async def _send(self, calls: list[tuple[str, tuple[Any, ...], asyncio.Future[Any]]]) -> None:
        try:
            results = await self._fly(self._handle.run_calls.remote([call[:2] for call in calls]))
        except Exception as error:  # noqa: BLE001 - it belongs to those who wait
            results = [error] * len(calls)
        for (_, _, future), result in zip(calls, results, strict=True):
            if future.done():  # its time is over
                continue
            if isinstance(result, BaseException):
                future.set_exception(result)
            else:
                future.set_result(result)
