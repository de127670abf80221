"""What the suites of serving share."""

import pytest
from ray.serve._private import replica


@pytest.fixture
def unpatched_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray as it was, after deployments were constructed in this process."""
    monkeypatch.setattr(replica, "add_port_to_grpc_server", replica.add_port_to_grpc_server)
