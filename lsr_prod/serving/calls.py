"""Calls to replicas that may die: sent again a few times, for they only read."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from ray.exceptions import ObjectLostError, RayActorError, RayTaskError
from ray.serve.exceptions import ReplicaUnavailableError

from lsr_prod.errors import LsrError

__all__ = ["LOST", "UnavailableError", "own_error", "pause", "send"]

log = logging.getLogger(__name__)

_T = TypeVar("_T")
# What a call fails with because of where it ran, not because of what it asked.
LOST = (RayActorError, ObjectLostError, ReplicaUnavailableError)


class UnavailableError(LsrError):
    """No replica answered: all that took the call died, or none was quick enough. The same query may succeed later."""


def pause(attempt: int) -> float:
    """Seconds to wait after attempt 0, 1, …: 0.02, doubling up to 1."""
    return min(1.0, 0.02 * 2.0**attempt)


def own_error(error: RayTaskError) -> BaseException:
    """What the other side raised, where that is an error of ours; else the error as Ray brought it."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, LsrError) else error


async def send(call: Callable[[], Awaitable[_T]], *, attempts: int, timeout_s: float, what: dict[str, Any]) -> _T:
    """Send a call, and again where its replica died.

    Args:
        call: sends it once, to whichever replica takes it.
        attempts: times to send it.
        timeout_s: seconds for all of them together.
        what: fields for the log.

    Raises:
        TimeoutError: there was no answer in time.
        UnavailableError: every replica that took the call died.
        LsrError: the replica refused.
    """
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
            log.warning("a replica was lost, sent again", extra={"fields": {**what, "error": type(error).__name__}})
            await asyncio.sleep(pause(attempt - 1))
        except RayTaskError as error:
            raise own_error(error) from error
