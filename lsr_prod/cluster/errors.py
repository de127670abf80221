"""Errors of workers: a deliberate one is raised as it is, any other becomes one line with task, node and cause."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ray.exceptions import RayActorError, RayError, RayTaskError

from lsr_prod.credentials import without_credentials
from lsr_prod.errors import LsrError, WorkerError
from lsr_prod.logs import get_log
from lsr_prod.storage.disk import disk_error

log = get_log(__name__)

_LINE = 400  # characters of the cause in the message; the log has all of it
_IP = re.compile(r"\bip(?:=|: *)([0-9a-fA-F.:]+)")
_COLOR = re.compile(r"\x1b\[[0-9;]*m")


@contextmanager
def worker_errors(task: str) -> Iterator[None]:
    """Turn every error of Ray inside the block into one of ours."""
    try:
        yield
    except RayError as error:
        raise worker_error(error, task) from error


def worker_error(error: BaseException, task: str) -> LsrError:
    """Return the error to raise for an error of Ray, and log where it happened, with the traceback of the worker."""
    fields = {"task": task, "node": _node(error), "error": _cause(error), "traceback": str(error)}
    log.error("worker failed", extra={"fields": fields})
    remedy = "the log has the worker's traceback; fix the cause, then run again"
    return our_error(error) or WorkerError(f"{task} failed: {describe(error)}; {remedy}")


def describe(error: BaseException) -> str:
    """Return type, message and node of an error of Ray, in one line."""
    node = _node(error)
    return f"{_cause(error)} (node {node})" if node else _cause(error)


def our_error(error: BaseException | None, place: str = "a file of a worker") -> LsrError | None:
    """Return the ``LsrError`` that a worker raised, below the wrappers of Ray and Ray Train, or None.

    An error of a library about a full or broken disk becomes one.
    """
    while error is not None:
        if isinstance(error, LsrError) and not isinstance(error, RayError):
            return error
        failures = getattr(error, "worker_failures", None)  # of Ray Train: rank -> error
        if isinstance(failures, Mapping):
            return next(filter(None, (our_error(one, place) for one in failures.values())), None)
        inner = _held(error) or error.__cause__
        if inner is None and not isinstance(error, RayError):
            return disk_error(error, place)
        error = inner
    return None


def _held(error: BaseException) -> BaseException | None:
    """Return the error that a wrapper holds: of a task, of the constructor of an actor, or of Ray Train."""
    held = [getattr(error, name, None) for name in ("cause", "controller_failure", "_base_exc")]
    held += [*getattr(error, "worker_failures", {}).values()]
    if isinstance(error, RayActorError):
        held += error.args[:1]
    return next((one for one in held if isinstance(one, BaseException) and one is not error), None)


def _cause(error: BaseException) -> str:
    """Return type and message of the innermost error, in one line."""
    inner = error
    while (below := _held(inner)) is not None:
        inner = below
    text = _COLOR.sub("", f"{type(inner).__name__}: {inner}")
    return without_credentials(" ".join(text.split()))[:_LINE]


def _node(error: BaseException) -> str | None:
    """Return the address of the node on which a worker failed, or None if Ray does not say it."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, RayTaskError | RayActorError) and (match := _IP.search(str(found))):
            return match[1]
        found = _held(found)
    return None
