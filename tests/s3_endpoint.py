"""moto's S3 server with conditional writes that are atomic, as those of S3 are.

    python -m tests.s3_endpoint PORT [--host 127.0.0.1] [--refuse 0.05] [--delay 0.05 --seconds 2]

moto looks for the object and stores it in two steps, on one thread a request: of two writers that create the same
object at once both could win. Here they wait for each other. On request it refuses a share of the requests with 503 and
delays another share, as a busy store does.
"""

import argparse
import random
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
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


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--refuse", type=float, default=0.0, help="share of requests that are answered with 503")
    parser.add_argument("--delay", type=float, default=0.0, help="share of requests that wait")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long they wait")
    return parser.parse_args()


if __name__ == "__main__":
    given = _options()
    server: Callable[..., Iterable[bytes]] = _OneConditionAtATime(DomainDispatcherApplication(create_backend_app))
    if given.refuse or given.delay:
        server = _Busy(server, given.refuse, given.delay, given.seconds)
    run_simple(given.host, given.port, server, threaded=True, request_handler=WSGIRequestHandler)
