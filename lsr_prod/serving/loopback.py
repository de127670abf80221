"""Bind the internal port of Ray Serve replicas to loopback."""

import os
from typing import Any

from lsr_prod.errors import ConfigError

__all__ = ["keep_internal_port_on_loopback"]

_NAME = "add_port_to_grpc_server"


def keep_internal_port_on_loopback() -> None:
    """Bind the internal gRPC server of this replica to 127.0.0.1; call it in the constructor of a deployment.

    Ray Serve opens that server in every replica, on all interfaces, and offers no setting for its address. It is used
    only where ``RAY_SERVE_USE_GRPC_BY_DEFAULT`` is set; calls between deployments of lsr_prod are actor calls. It reads
    pickles, so everybody who can reach it can run code.

    Raises:
        ConfigError: this version of Ray opens the port in another way, or its calls use that port.
    """
    import ray
    from ray.serve._private import replica

    if os.environ.get("RAY_SERVE_USE_GRPC_BY_DEFAULT", "0") != "0":
        raise ConfigError("RAY_SERVE_USE_GRPC_BY_DEFAULT", "calls would go through an open port", "unset it")
    if not hasattr(replica, _NAME):
        raise ConfigError(
            "serve",
            f"Ray {ray.__version__} opens a port on all interfaces in a way that lsr_prod cannot close",
            "install the Ray that requirements/dev.txt names",
        )
    setattr(replica, _NAME, _add_port_on_loopback)


def _add_port_on_loopback(server: Any, address: str) -> int:
    from ray._common.tls_utils import add_port_to_grpc_server

    port: int = add_port_to_grpc_server(  # type: ignore[no-untyped-call]
        server, f"127.0.0.1:{address.rpartition(':')[2]}"
    )
    return port
