"""The shard groups of an application: calls to their replicas, and which groups are down."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, TypeVar

from ray.exceptions import ObjectLostError, RayActorError, RayTaskError
from ray.serve.exceptions import DeploymentUnavailableError, ReplicaUnavailableError
from ray.serve.handle import DeploymentHandle

from lsr_prod import errors, logs
from lsr_prod.search.candidates import Candidates
from lsr_prod.search.shard.postings import ShardQuery
from lsr_prod.serving.replica import Pin

log = logs.get_log(__name__)
_T = TypeVar("_T")
# Errors caused by the place where a call ran, not by the call itself.
LOST = (RayActorError, ObjectLostError, ReplicaUnavailableError, DeploymentUnavailableError)
_GRACE_S = 0.1  # for a response sent at the deadline to arrive
_ASKED = 4  # calls to a group that ask what its replicas have opened
_PROBE_S = 0.5  # seconds between two probes of a group that is down
_MOST_S = 0.002  # that a call waits for others
_MOST = 64  # calls that travel together


class UnavailableError(errors.LsrError):
    """No replica answered: all replicas that received the call died, or none answered in time. Try again later."""


class OverloadedError(UnavailableError):
    """The router has as many requests as it may have, and refused this one without work. Try again after a second."""


def pause(attempt: int) -> float:
    """Return the seconds to wait after attempt 0, 1, …: 0.02, doubling up to 1."""
    return min(1.0, 0.02 * 2.0**attempt)


def own_error(error: RayTaskError) -> BaseException:
    """Return the ``LsrError`` that the remote side raised, or else Ray's error."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, errors.LsrError) else error


async def send(call: Callable[[], Awaitable[_T]], *, attempts: int, timeout_s: float, what: dict[str, Any]) -> _T:
    """Send a call, again if its replica died."""
    end = time.monotonic() + timeout_s
    attempt = 0
    while True:
        try:
            return await asyncio.wait_for(call(), max(0.0, end - time.monotonic()))
        except LOST as error:
            attempt += 1
            if attempt >= attempts:
                raise UnavailableError(
                    f"{attempts} replicas were lost with the same call ({what}); look at their logs"
                ) from error
            log.warning("replica lost, call sent again", extra={"fields": {**what, "error": type(error).__name__}})
            await asyncio.sleep(pause(attempt - 1))
        except RayTaskError as error:
            raise own_error(error) from error


class DeadlinePassedError(UnavailableError):
    """A shard group did not answer before the deadline of the query."""


class Groups:
    """The shard groups of an application, and the event loop that their calls run in. Safe to share between threads.

    A group whose call failed is down until a probe of it succeeds; after a missed deadline, if a probe fails as well.
    Calls to it fail at once, so that a dead group does not hold every query for ``timeout_s``.
    """

    def __init__(
        self, handles: Sequence[DeploymentHandle[Any]], *, attempts: int, timeout_s: float, partial: bool = False
    ) -> None:
        self.handles = tuple(handles)
        self.partial = partial
        self._calls = [GroupCalls(handle) for handle in handles]
        self._attempts = attempts
        self._timeout_s = timeout_s
        self._down: dict[int, asyncio.Task[None]] = {}
        self._doubted: dict[int, asyncio.Task[None]] = {}  # groups that missed a deadline
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="lsr-scatter", daemon=True).start()

    def submit(self, call: Coroutine[Any, Any, _T]) -> "Future[_T]":
        """Run a coroutine in the event loop of the groups."""
        return asyncio.run_coroutine_threadsafe(call, self._loop)

    async def call(
        self, group: int, pin: Pin, method: str, *arguments: Any, deadline: float | None = None, grace_s: float = 0.0
    ) -> Any:
        """Call a method of a free replica of a group; see ``ShardReplica.call``.

        A query, the first of the arguments, gives its deadline to the replica. The call itself fails at ``deadline``, a
        ``time.monotonic()``, and some time after it for the response to arrive.
        """
        self._check_up(group)
        calls, timeout_s, until = self._calls[group], self._timeout_s, None
        if arguments and isinstance(arguments[0], ShardQuery) and (until := arguments[0].deadline) is not None:
            arguments = (replace(arguments[0], deadline=None), *arguments[1:])
        if deadline is not None:
            left_s = max(0.0, deadline - time.monotonic()) + grace_s
            deadline, timeout_s = deadline if left_s < timeout_s else None, min(timeout_s, left_s)
        try:
            return await send(
                lambda: calls.call(pin, None if until is None else until - time.monotonic(), method, *arguments),
                attempts=self._attempts,
                timeout_s=timeout_s,
                what={"group": group, "method": method},
            )
        except TimeoutError as error:
            if deadline is not None:
                if group not in self._doubted:
                    self._doubted[group] = asyncio.get_running_loop().create_task(self._doubt(group))
                raise _too_late(group) from error
            failure = UnavailableError(
                f"shard group {group} did not answer within {timeout_s} s; look at its replicas, or raise "
                "serve.timeout_s"
            )
            self._mark_down(group, failure)
            raise failure from error
        except UnavailableError as error:
            self._mark_down(group, error)
            raise

    async def match(self, group: int, pin: Pin, query: ShardQuery) -> Candidates:
        """Return the best documents of a group."""
        self._check_up(group)
        if query.deadline is not None and query.deadline <= time.monotonic():
            raise _too_late(group)
        found: Candidates = await self.call(group, pin, "match", query, deadline=query.deadline, grace_s=_GRACE_S)
        return found

    async def missing(self, within_s: float) -> tuple[int, ...]:
        """Return the groups of which no replica answers within ``within_s`` seconds."""
        states = await asyncio.gather(*(self._state(group, within_s) for group in range(len(self.handles))))
        return tuple(group for group, state in enumerate(states) if state is None)

    async def lagging(self, version: str, within_s: float) -> dict[int, str]:
        """Return the groups with a replica that has not opened a version, with its problem, or "" if it has none.

        Replicas that do not answer within ``within_s`` seconds cannot be waited for, and are left out.
        """
        # Calls that run at the same time go to different replicas, as far as there are some.
        asked = [group for group in range(len(self.handles)) for _ in range(_ASKED)]
        states = await asyncio.gather(*(self._state(group, within_s) for group in asked))
        found = [
            (group, state["problem"] or "")
            for group, state in zip(asked, states, strict=True)
            if state is not None and version not in state["versions"]
        ]
        return dict(sorted(found))  # of the replicas of a group, one with a problem

    async def _state(self, group: int, within_s: float) -> dict[str, Any] | None:
        """Return the state of a free replica of a group; None: it does not answer."""
        try:
            state: dict[str, Any] = await asyncio.wait_for(self.handles[group].state.remote(), within_s)
        except Exception:  # noqa: BLE001 - any failure means that the group cannot answer queries
            return None
        return state

    def _check_up(self, group: int) -> None:
        if group in self._down:
            raise UnavailableError(f"shard group {group} is down: no replica of it answers; look at its replicas")

    def _mark_down(self, group: int, error: UnavailableError) -> None:
        if group not in self._down:
            log.error("shard group is down: %s", error, extra={"fields": {"group": group, "error": str(error)}})
            self._down[group] = asyncio.get_running_loop().create_task(self._probe(group))

    async def _doubt(self, group: int) -> None:
        """Mark a group down if none of its replicas answers: a slow query alone may miss its deadline."""
        if await self._state(group, self._timeout_s) is None:
            problem = f"it missed a deadline, then no replica answered a probe within {self._timeout_s} s"
            self._mark_down(group, UnavailableError(problem))
        del self._doubted[group]

    async def _probe(self, group: int) -> None:
        """Wait until a replica of a group answers; then the group is up."""
        while await self._state(group, self._timeout_s) is None:
            await asyncio.sleep(_PROBE_S)
        del self._down[group]
        log.info("shard group %d answers again", group, extra={"fields": {"group": group}})


def _too_late(group: int) -> DeadlinePassedError:
    return DeadlinePassedError(f"shard group {group} did not answer before the deadline; raise deadline_ms")


class GroupCalls:
    """Sends a call at once if none is on its way, else with those that wait until one returns. Use it from one loop.

    A call to a replica costs more than a small search. A call that hangs delays no other one by more than 2 ms.
    """

    def __init__(self, handle: DeploymentHandle[Any]) -> None:
        self._handle = handle
        self._flying = 0
        self._waiting: list[tuple[tuple[Any, ...], asyncio.Future[Any]]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._sent: set[asyncio.Task[None]] = set()

    async def call(self, *arguments: Any) -> Any:
        """Return the result of a call of any replica."""
        if not self._flying:
            return await self._fly(self._handle.call.remote(*arguments))
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._waiting.append((arguments, future))
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
        waiting = [one for one in self._waiting if not one[1].done()]
        self._waiting.clear()
        for start in range(0, len(waiting), _MOST):
            task = asyncio.get_running_loop().create_task(self._send(waiting[start : start + _MOST]))
            self._sent.add(task)
            task.add_done_callback(self._sent.discard)

    async def _send(self, calls: list[tuple[tuple[Any, ...], asyncio.Future[Any]]]) -> None:
        try:
            results = await self._fly(self._handle.run_calls.remote([arguments for arguments, _ in calls]))
        except Exception as error:  # noqa: BLE001 - it belongs to those who wait
            results = [error] * len(calls)
        for (_, future), result in zip(calls, results, strict=True):
            if future.done():  # its time is over
                continue
            if isinstance(result, BaseException):
                future.set_exception(result)
            else:
                future.set_result(result)
