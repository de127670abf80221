"""What the suites of serving share."""

from collections.abc import Iterator
from typing import Any

import pytest
from ray.serve._private import replica

from lsr_prod.search.follower import Follower


@pytest.fixture(autouse=True)
def _followers_end_with_their_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A replica follows the publications as long as its process lives; here it is not its process."""
    started: list[Follower] = []
    start = Follower.__init__

    def note(self: Follower, *arguments: Any, **named: Any) -> None:
        start(self, *arguments, **named)
        started.append(self)

    monkeypatch.setattr(Follower, "__init__", note)
    yield
    for follower in started:
        follower.stop()


@pytest.fixture
def unpatched_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray as it was, after deployments were constructed in this process."""
    for name in ("add_port_to_grpc_server", "start_asgi_http_server"):
        monkeypatch.setattr(replica, name, getattr(replica, name))
