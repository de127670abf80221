"""moto's S3 server with conditional writes that are atomic, as those of S3 are.

    python -m tests.s3_endpoint PORT

moto looks for the object and stores it in two steps, on one thread a request: of two writers that create the same
object at once both could win. Here they wait for each other.
"""

import sys
import threading
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


if __name__ == "__main__":
    server = _OneConditionAtATime(DomainDispatcherApplication(create_backend_app))
    run_simple("127.0.0.1", int(sys.argv[1]), server, threaded=True, request_handler=WSGIRequestHandler)
