"""HAProxy of Ray Serve with the listener of the application only, in the folder of this user."""

import os
import resource
import shutil
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from lsr_prod.cluster.address import HAPROXY, check_serve_variables
from lsr_prod.cluster.session import own_folder
from lsr_prod.errors import ConfigError
from lsr_prod.search.server import RETRY_AFTER_S

_LONGEST = 97  # bytes in the name of a socket of HAProxy
_BELOW = f"/{'0' * 56}/admin.sock"  # the id of the node, and the socket
_FILES = {
    "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": "haproxy.cfg",
    "RAY_SERVE_HAPROXY_SOCKET_PATH": "admin.sock",
    "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": "",
    "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": "server-state",
    "RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH": "metrics.sock",
}
_LOST = (
    '{"error": "UnavailableError", "message": "no router answered; try again after '
    f'{RETRY_AFTER_S} s, and look at the logs of the routers"}}'
)
# Only a request that HAProxy has whole is sent to another router. After a refused connection HAProxy waits for as long
# as it would wait for a connection, at most a second.
_LOST_ROUTER = "    option http-buffer-request\n    timeout connect 300ms\n    option redispatch"
_FILES_PER_CONNECTION, _OTHER_FILES, _MOST = 2, 56, 4096
_GRPC, _HTTP = "add_port_to_grpc_server", "start_asgi_http_server"
_Asgi = Callable[[Any, Any, Any], Awaitable[None]]


def haproxy_folder() -> Path:
    """Return the folder for the configuration and the sockets of HAProxy, which only this user reads."""
    folder = Path(os.environ.get("RAY_TMPDIR") or own_folder()) / "haproxy"
    most = _LONGEST - len(_BELOW) - len("/haproxy")
    if len(os.fsencode(folder)) + len(_BELOW) > _LONGEST:
        problem = f"the sockets of HAProxy below {folder.parent} would have names that are too long"
        remedy = f"set it to a folder of your own whose name has at most {most} bytes, or set {HAPROXY}=0"
        raise ConfigError("RAY_TMPDIR", problem, remedy)
    return folder


def closed_template(template: str) -> str:
    """Return Ray's template of HAProxy's configuration with one listener, a private socket and fast retries."""
    for start, end, instead in (
        ("frontend prometheus", "frontend http_frontend", ""),  # on all interfaces, like the next one
        ("\nlisten stats", "", "\n"),
        ("mode 666 level admin", " ", "mode 600 level admin"),
        ("    log {{ config.log_target }}", "    stats socket", ""),  # a datagram for syslog per request
        ("    option redispatch", " 1\n", _LOST_ROUTER),
    ):
        before, found, rest = template.partition(start)
        place = rest.find(end) if found else -1
        if place < 0:
            raise _unknown_ray()
        template = before + instead + rest[place if end else len(rest) :]
    if "bind :" in template or "bind *" in template:
        raise _unknown_ray()
    return template


def check_haproxy() -> None:
    """Check that HAProxy can be closed, before Serve is started with it."""
    from ray.serve._private.haproxy_templates import HAPROXY_CONFIG_TEMPLATE

    closed_template(HAPROXY_CONFIG_TEMPLATE)


def place_files(haproxy: Any) -> None:
    """Let Ray place the files of HAProxy in ``haproxy_folder``, except where a variable says otherwise."""
    folder = haproxy_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    remove_leftovers(folder)
    for name, file in _FILES.items():
        if name not in os.environ:
            setattr(haproxy, name, str(folder / file))


def remove_leftovers(folder: Path) -> None:
    """Remove the folders of nodes whose HAProxy was killed: its socket refuses connections."""
    for file in folder.glob("*/admin.sock"):
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(file))
            except ConnectionRefusedError:
                shutil.rmtree(file.parent, ignore_errors=True)
            except OSError:
                continue  # it was removed in the meantime


def most_connections() -> int:
    """Return the number of connections that HAProxy can hold with the open files that it may have."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if files == resource.RLIM_INFINITY:
        return _MOST
    return max(8, min(_MOST, (files - _OTHER_FILES) // _FILES_PER_CONNECTION))


def write_lost_answer(file: str) -> None:
    """Write the response to a request whose router was lost; Ray's has status 500."""
    head = (
        "HTTP/1.1 503 Service Unavailable",
        "Content-Type: application/json",
        f"Content-Length: {len(_LOST)}",
        f"Retry-After: {RETRY_AFTER_S}",
    )
    Path(file).write_text("\r\n".join([*head, "", _LOST]), encoding="ascii", newline="")


def _unknown_ray() -> ConfigError:
    import ray

    return ConfigError(
        "serve",
        f"Ray {ray.__version__} configures HAProxy in a way that lsr_prod cannot close",
        f"install the Ray that requirements/dev.txt names, or set {HAPROXY}=0",
    )


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
        problem = f"Ray {ray.__version__} opens a port on all interfaces in a way that lsr_prod cannot close"
        remedy = f"install the Ray that requirements/dev.txt names; for the port of HTTP, {HAPROXY}=0 helps, too"
        raise ConfigError("serve", problem, remedy)


def _add_port_on_loopback(server: Any, address: str) -> int:
    from ray._common.tls_utils import add_port_to_grpc_server

    port: int = add_port_to_grpc_server(  # type: ignore[no-untyped-call]
        server, f"127.0.0.1:{address.rpartition(':')[2]}"
    )
    return port
