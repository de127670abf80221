"""HTTP requests and responses of a router: bodies of bounded size, status codes."""

import asyncio
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lsr_prod.errors import LsrError, QueryError
from lsr_prod.serving.admission import RETRY_AFTER_S
from lsr_prod.serving.calls import OverloadedError
from lsr_prod.serving.wire import error_to_json

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

__all__ = ["BodyTooLargeError", "SlowBodyError", "error_response", "json_response", "parse_body", "read_body"]

_STATUS = {"QueryError": 400, "SlowBodyError": 408, "BodyTooLargeError": 413, "UnavailableError": 503}


class BodyTooLargeError(QueryError):
    """The body of a request has more bytes than ``serve.max_body_bytes``."""


class SlowBodyError(QueryError):
    """The body of a request did not arrive within ``serve.timeout_s``."""


async def read_body(request: "Request", *, limit: int, timeout_s: float) -> bytes:
    """Return the body of a request; never hold more than ``limit`` bytes and one chunk.

    Args:
        request: from a client.
        limit: maximum number of bytes.
        timeout_s: seconds for the whole body.

    Raises:
        BodyTooLargeError: the declared or the received size exceeds ``limit``; the rest is not read.
        SlowBodyError: the body did not arrive in time.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:20]) > limit:
        raise _too_large(f"{declared[:20]}", limit)
    try:
        return await asyncio.wait_for(_read(request, limit), timeout_s)
    except TimeoutError:
        raise SlowBodyError(f"the request did not arrive within {timeout_s} s; send it faster") from None


async def _read(request: "Request", limit: int) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise _too_large(f"more than {limit}", limit)
    return bytes(body)


def _too_large(size: str, limit: int) -> BodyTooLargeError:
    return BodyTooLargeError(f"the request has {size} bytes; send at most {limit} (serve.max_body_bytes)")


def parse_body(body: bytes) -> Any:
    """Return the JSON value of a request body.

    Raises:
        QueryError: the body is not JSON.
    """
    try:
        value = json.loads(body)
        json.dumps(value, ensure_ascii=False).encode()  # the response repeats terms: no lone surrogates
        return value
    except (ValueError, RecursionError) as error:
        raise QueryError(f"the request is not JSON ({error}); send an object with text or vector") from error


def error_response(error: LsrError) -> "Response":
    """Return the HTTP response to an error."""
    return json_response(error_to_json(error))


def json_response(value: Mapping[str, Any], status: int | None = None) -> "Response":
    """Return a JSON response.

    Args:
        value: the value.
        status: the status code; None: 200, or that of the error that the value names.
    """
    from starlette.responses import JSONResponse

    error = value.get("error")
    if error == OverloadedError.__name__:
        return JSONResponse(value, 503, headers={"Retry-After": str(RETRY_AFTER_S)})
    if status is None:
        status = 200 if error is None else _STATUS.get(error, 500)
    return JSONResponse(value, status)
