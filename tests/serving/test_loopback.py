"""The port that Ray Serve opens in every replica."""

import asyncio

import pytest

from lsr_prod.errors import ConfigError
from lsr_prod.serving import haproxy
from lsr_prod.serving.haproxy import answer_http_directly, keep_internal_port_on_loopback


@pytest.fixture
def replica(monkeypatch):
    from ray.serve._private import replica

    for name in ("add_port_to_grpc_server", "start_asgi_http_server"):
        monkeypatch.setattr(replica, name, getattr(replica, name))
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
    assert opened.index("_maybe_start_direct_ingress_servers()") < opened.index("add_port_to_grpc_server(self._server")
    assert "await start_asgi_http_server(" in getsource(replica.Replica._maybe_start_direct_ingress_servers)


@pytest.mark.parametrize("given", ["0.0.0.0", "10.1.2.3"])
def test_requests_of_haproxy_reach_the_application_directly(replica, monkeypatch, given):
    from ray.serve.config import HTTPOptions

    started, called = [], []

    async def start(application, options, **named):
        started.append((application, options, named))

    def application(name):
        async def call(scope, *_):
            called.append((name, scope["path"]))

        return call

    monkeypatch.setattr(replica, "start_asgi_http_server", start)
    monkeypatch.setattr(haproxy, "node_address", lambda: "127.0.0.1")
    answer_http_directly(application("ours"), frozenset({"/search"}))
    options = HTTPOptions(host=given, port=30_001)
    asyncio.run(replica.start_asgi_http_server(application("of Ray"), options, event_loop=None))
    divided, bound, named = started[0]
    assert (bound.host, bound.port, named) == ("127.0.0.1", 30_001, {"event_loop": None})
    for path in ("/search", "/-/healthz"):
        asyncio.run(divided({"path": path}, None, None))
    assert called == [("ours", "/search"), ("of Ray", "/-/healthz")]


def test_a_ray_that_starts_http_in_another_way_is_refused(replica, monkeypatch):
    monkeypatch.delattr(replica, "start_asgi_http_server")
    with pytest.raises(ConfigError, match="RAY_SERVE_ENABLE_HA_PROXY=0"):
        answer_http_directly(None, frozenset())
