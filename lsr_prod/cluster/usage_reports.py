"""Usage reports of a local Ray: without them, the process that sends them is not started.

Ray starts it also where reports are off, and it then still asks the metadata servers of clouds (the name
``metadata.google.internal``, the address 169.254.169.254) which cloud the machine is in.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def without_reporter() -> Iterator[None]:
    """Let ``ray.init(include_dashboard=False)`` start no API server, unless RAY_USAGE_STATS_ENABLED is 1.

    Without a dashboard, reports about usage are all that it does.
    """
    from ray._private.node import Node

    if os.environ.get("RAY_USAGE_STATS_ENABLED") == "1":
        yield
        return
    start = Node.start_api_server

    def start_no_server(self: Node, **options: Any) -> None:  # noqa: ARG001 - the signature of Ray
        assert options["include_dashboard"] is False

    Node.start_api_server = start_no_server  # type: ignore[method-assign]
    try:
        yield
    finally:
        Node.start_api_server = start  # type: ignore[method-assign]
