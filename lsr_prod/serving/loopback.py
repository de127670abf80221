"""Bind the ports that Ray Serve opens in replicas: that for pickles to loopback, that of HTTP to the address of Ray."""

from collections.abc import Awaitable, Callable
from typing import Any

from lsr_prod.cluster.serve_variables import HAPROXY, check_serve_variables
from lsr_prod.errors import ConfigError

_GRPC, _HTTP = "add_port_to_grpc_server", "start_asgi_http_server"
_Asgi = Callable[[Any, Any, Any], Awaitable[None]]


def keep_internal_port_on_loopback() -> None:
    """Bind the internal gRPC server of this replica to 127.0.0.1; call it in the constructor of a deployment.

    Ray Serve opens that server in every replica, on all interfaces, and offers no setting for its address. It is used
    only where ``RAY_SERVE_USE_GRPC_BY_DEFAULT`` is set; calls between deployments of lsr_prod are actor calls. It reads
    pickles, so everybody who can reach it can run code.
    """
    from ray.serve._private import replica

    check_serve_variables()
    _check_known(replica, _GRPC)
    setattr(replica, _GRPC, _add_port_on_loopback)


def answer_http_directly(application: _Asgi, paths: frozenset[str]) -> None:
    """Let the HTTP server of this replica, which HAProxy sends requests to, call ``application`` for ``paths``.

    Ray answers the rest, such as health checks. Its own way to a deployment costs more than a search. The server is
    bound to the address that Ray knows the node by, where HAProxy of every node finds it: loopback in a local cluster.
    """
    from ray.serve._private import replica

    _check_known(replica, _HTTP)
    start = getattr(replica, _HTTP)

    async def start_closed(rest: _Asgi, options: Any, **named: Any) -> Any:
        async def divide(scope: Any, receive: Any, send: Any) -> None:
            await (application if scope.get("path") in paths else rest)(scope, receive, send)

        return await start(divide, options.model_copy(update={"host": node_address()}), **named)

    setattr(replica, _HTTP, start_closed)


def node_address() -> str:
    """Return the address that Ray knows this node by."""
    import ray

    return str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]


def _check_known(replica: Any, name: str) -> None:
    import ray

    if not hasattr(replica, name):
        raise ConfigError(
            "serve",
            f"Ray {ray.__version__} opens a port on all interfaces in a way that lsr_prod cannot close",
            f"install the Ray that requirements/dev.txt names; for the port of HTTP, {HAPROXY}=0 helps, too",
        )


def _add_port_on_loopback(server: Any, address: str) -> int:
    from ray._common.tls_utils import add_port_to_grpc_server

    port: int = add_port_to_grpc_server(  # type: ignore[no-untyped-call]
        server, f"127.0.0.1:{address.rpartition(':')[2]}"
    )
    return port
