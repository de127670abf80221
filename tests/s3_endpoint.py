"""moto's S3 server with conditional writes that are atomic, as those of S3 are.

    python -m tests.s3_endpoint PORT [--host 127.0.0.1] [--refuse 0.05] [--delay 0.05 --seconds 2] [--broken]

moto looks for the object and stores it in two steps, on one thread a request: of two writers that create the same
object at once both could win. Here they wait for each other. In what no client may rely on it is as strict as Ceph, see
``_AsCeph``. On request it refuses a share of the requests with 503 and
delays another share, as a busy store does. With ``--broken`` some buckets behave wrongly, see ``_BrokenBuckets``.
"""

import argparse
import random
import re
import threading
import time
from collections.abc import Callable, Iterable
from email.utils import formatdate
from typing import Any

from moto.moto_server.werkzeug_app import create_backend_app
from werkzeug.serving import WSGIRequestHandler, run_simple

_CONDITIONS = ("HTTP_IF_NONE_MATCH", "HTTP_IF_MATCH")


class _OneConditionAtATime:
    """WSGI middleware: a lock around every request that has a condition and is no read."""

    def __init__(self, app: Callable[..., Iterable[bytes]]) -> None:
        self._app = app
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] == "PUT" and any(name in environ for name in _CONDITIONS):
            with self._lock:
                return list(self._app(environ, start_response))
        return self._app(environ, start_response)


class _AsCeph:
    """WSGI middleware: does what Ceph's gateway does and moto does not.

    It lists times in milliseconds, although answers about one object have seconds, and refuses content without length.
    """

    def __init__(self, app: Callable[..., Iterable[bytes]]) -> None:
        self._app = app

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] == "PUT" and "chunked" in environ.get("HTTP_TRANSFER_ENCODING", "").lower():
            environ["wsgi.input"].read()
            start_response("411 Length Required", [("Content-Type", "application/xml")])
            return [b"<Error><Code>MissingContentLength</Code></Error>"]
        body = self._app(environ, start_response)
        if environ["REQUEST_METHOD"] == "GET" and "list-type=" in environ.get("QUERY_STRING", ""):
            return [b"".join(body).replace(b".000Z</LastModified>", b".250Z</LastModified>")]
        return body


class _Busy:
    """WSGI middleware: answers a share of the requests with 503, and delays another share."""

    def __init__(self, app: Callable[..., Iterable[bytes]], refuse: float, delay: float, seconds: float) -> None:
        self._app, self._refuse, self._delay, self._seconds = app, refuse, delay, seconds
        self._random = random.Random(0)

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        share = self._random.random()
        if share < self._refuse:
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))  # or the client sees a reset connection
            start_response("503 Slow Down", [("Content-Type", "application/xml")])
            return [b"<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"]
        if share < self._refuse + self._delay:
            time.sleep(self._seconds)
        return self._app(environ, start_response)


class _BrokenBuckets:
    """WSGI middleware: a bucket with one of these names does what a store must not do.

    - ``ignores-conditions``: creates an object again that exists.
    - ``racy``: looks for the object and stores it in two steps.
    - ``denies-writes``, ``denies-deletes``: refuses them with 403.
    - ``refuses-parts``: has no multipart uploads.
    - ``lists-late``: lists an object five seconds after it was written.
    - ``wrong-clock``: its clock is two minutes ahead.
    """

    def __init__(self, app: Callable[..., Iterable[bytes]]) -> None:
        self._app = app
        self._written: dict[str, float] = {}

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        bucket, _, key = path.lstrip("/").partition("/")
        is_list = method == "GET" and not key
        is_deletion = method == "DELETE" or (method == "POST" and "delete" in environ.get("QUERY_STRING", ""))
        denied = {"denies-writes": method == "PUT" and key, "denies-deletes": is_deletion}
        if denied.get(bucket):
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start_response("403 Forbidden", [("Content-Type", "application/xml")])
            return [b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"]
        if bucket == "refuses-parts" and method == "POST" and "uploads" in environ.get("QUERY_STRING", ""):
            start_response("501 Not Implemented", [("Content-Type", "application/xml")])
            return [b"<Error><Code>NotImplemented</Code><Message>multipart uploads</Message></Error>"]
        if method == "PUT" and key:
            if bucket == "ignores-conditions" or (bucket == "racy" and path not in self._written):
                time.sleep(0.1 if bucket == "racy" else 0)
                environ.pop("HTTP_IF_NONE_MATCH", None)
            self._written[path] = time.time()
        if bucket == "wrong-clock":
            return self._two_minutes_ahead(environ, start_response)
        body = self._app(environ, start_response)
        if bucket == "lists-late" and is_list:
            return [self._without_new(b"".join(body), bucket)]
        return body

    def _two_minutes_ahead(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        def start(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            ahead = formatdate(time.time() + 120, usegmt=True)
            moved = [(name, ahead if name.lower() == "last-modified" else value) for name, value in headers]
            return start_response(status, moved, *rest)

        return self._app(environ, start)

    def _without_new(self, body: bytes, bucket: str) -> bytes:
        length = len(body)
        for path, written in list(self._written.items()):
            if path.startswith(f"/{bucket}/") and time.time() - written < 5:
                key = re.escape(path.removeprefix(f"/{bucket}/").encode())
                body = re.sub(rb"<Contents>\s*<Key>" + key + rb"</Key>.*?</Contents>", b"", body, flags=re.DOTALL)
        return body.ljust(length)  # as the header says


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--refuse", type=float, default=0.0, help="share of requests that are answered with 503")
    parser.add_argument("--delay", type=float, default=0.0, help="share of requests that wait")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long they wait")
    parser.add_argument("--broken", action="store_true", help="buckets with some names behave wrongly")
    return parser.parse_args()


if __name__ == "__main__":
    given = _options()
    # Its server of all services looks the service of every request up in the folder of its code.
    server: Callable[..., Iterable[bytes]] = create_backend_app("s3")
    server = _AsCeph(_OneConditionAtATime(server))
    if given.broken:
        server = _BrokenBuckets(server)
    if given.refuse or given.delay:
        server = _Busy(server, given.refuse, given.delay, given.seconds)
    run_simple(given.host, given.port, server, threaded=True, request_handler=WSGIRequestHandler)
