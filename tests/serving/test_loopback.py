"""The port that Ray Serve opens in every replica."""

import asyncio

import pytest

from lsr_prod.errors import ConfigError
from lsr_prod.serving.loopback import keep_internal_port_on_loopback


@pytest.fixture
def replica(monkeypatch):
    from ray.serve._private import replica

    monkeypatch.setattr(replica, "add_port_to_grpc_server", replica.add_port_to_grpc_server)
    return replica


class Server:
    addresses: list[str]

    def __init__(self):
        self.addresses = []

    def add_insecure_port(self, address):
        self.addresses.append(address)
        return 7


def test_the_internal_port_is_bound_to_loopback(replica, monkeypatch):
    monkeypatch.delenv("RAY_USE_TLS", raising=False)
    keep_internal_port_on_loopback()
    server = Server()
    assert replica.add_port_to_grpc_server(server, "[::]:0") == 7
    assert replica.add_port_to_grpc_server(server, "0.0.0.0:1234") == 7
    assert server.addresses == ["127.0.0.1:0", "127.0.0.1:1234"]


def test_a_ray_that_opens_the_port_in_another_way_is_refused(replica, monkeypatch):
    monkeypatch.delattr(replica, "add_port_to_grpc_server")
    with pytest.raises(ConfigError, match="on all interfaces"):
        keep_internal_port_on_loopback()


def test_calls_through_the_internal_port_are_refused(replica, monkeypatch):
    monkeypatch.setenv("RAY_SERVE_USE_GRPC_BY_DEFAULT", "1")
    with pytest.raises(ConfigError, match="unset it"):
        keep_internal_port_on_loopback()


def test_ray_opens_the_port_after_the_constructor_of_a_deployment(replica):
    from inspect import getsource

    initialize, opened = getsource(replica.Replica.initialize), getsource(replica.Replica._on_initialized)
    assert initialize.index("initialize_callable()") < initialize.index("_on_initialized()")
    assert "add_port_to_grpc_server(self._server" in opened
    assert asyncio.iscoroutinefunction(replica.Replica._on_initialized)
