"""HTTP requests and responses of a router: bodies of bounded size, status codes."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lsr_prod.errors import LsrError, QueryError
from lsr_prod.search.server import RETRY_AFTER_S
from lsr_prod.serving import groups, wire

STATUS = {"QueryError": 400, "SlowBodyError": 408, "BodyTooLargeError": 413, "UnavailableError": 503}
_JSON = (b"content-type", b"application/json")
_RETRY = (b"retry-after", b"%d" % RETRY_AFTER_S)
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_Receive = Callable[[], Awaitable[Any]]


class BodyTooLargeError(QueryError):
    """The body of a request has more bytes than ``serve.max_body_bytes``."""


class SlowBodyError(QueryError):
    """The body of a request did not arrive within ``serve.timeout_s``."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP response with a JSON value."""

    status: int  # the status code
    body: bytes  # the value
    overloaded: bool = False  # tell the client to try again later

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """Its headers."""
        length = (b"content-length", b"%d" % len(self.body))
        return [_JSON, length, _RETRY] if self.overloaded else [_JSON, length]


async def read_body(receive: _Receive, headers: Mapping[bytes, bytes], *, limit: int, timeout_s: float) -> bytes:
    """Return the body of a request; never hold more than ``limit`` bytes and one chunk."""
    declared = headers.get(b"content-length", b"")
    if declared.isdigit() and int(declared[:20]) > limit:
        raise _too_large(declared[:20].decode("ascii"), limit)
    try:
        async with asyncio.timeout(timeout_s):
            return await _read(receive, limit)
    except TimeoutError:
        raise SlowBodyError(f"the request did not arrive within {timeout_s} s; send it faster") from None


async def _read(receive: _Receive, limit: int) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ConnectionError("the client left before its request was complete")
        body += message.get("body", b"")
        if len(body) > limit:
            raise _too_large(f"more than {limit}", limit)
        if not message.get("more_body", False):
            return bytes(body)


def _too_large(size: str, limit: int) -> BodyTooLargeError:
    return BodyTooLargeError(f"the request has {size} bytes; send at most {limit} (serve.max_body_bytes)")


def parse_body(body: bytes) -> Any:
    """Return the JSON value of a request body."""
    try:
        text = body.decode("utf-8-sig")
        value = json.loads(text)
        if "\\u" in text:  # the response repeats terms: no lone surrogates
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except (ValueError, RecursionError) as error:
        raise QueryError(f"the request is not JSON ({error}); send an object with text or vector") from error


def error_reply(error: LsrError) -> Reply:
    """Return the HTTP response to an error."""
    return json_reply(wire.error_to_json(error))


def json_reply(value: Mapping[str, Any], status: int | None = None) -> Reply:
    """Return a JSON response."""
    error = value.get("error")
    overloaded = error == groups.OverloadedError.__name__
    if overloaded:
        status = 503
    elif status is None:
        status = 200 if error is None else STATUS.get(error, 500)
    return Reply(status, _encode(value).encode(), overloaded)


async def send_reply(send: Callable[[Any], Awaitable[None]], reply: Reply) -> None:
    """Send a response by ASGI."""
    await send({"type": "http.response.start", "status": reply.status, "headers": reply.headers})
    await send({"type": "http.response.body", "body": reply.body})
