"""Calls to replicas that may die. Calls only read, so a lost call is sent again, a bounded number of times."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from ray.exceptions import ObjectLostError, RayActorError, RayTaskError
from ray.serve.exceptions import DeploymentUnavailableError, ReplicaUnavailableError

from lsr_prod.errors import LsrError
from lsr_prod.logs import get_log

log = get_log(__name__)

_T = TypeVar("_T")
# Errors caused by the place where a call ran, not by the call itself.
LOST = (RayActorError, ObjectLostError, ReplicaUnavailableError, DeploymentUnavailableError)


class UnavailableError(LsrError):
    """No replica answered: all replicas that received the call died, or none answered in time. Try again later."""


class OverloadedError(UnavailableError):
    """The router has as many requests as it may have, and refused this one without work. Try again after a second."""


def pause(attempt: int) -> float:
    """Return the seconds to wait after attempt 0, 1, …: 0.02, doubling up to 1."""
    return min(1.0, 0.02 * 2.0**attempt)


def own_error(error: RayTaskError) -> BaseException:
    """Return the ``LsrError`` that the remote side raised, or else Ray's error."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, LsrError) else error


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
