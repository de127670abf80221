"""Checks of the address of a cluster before Ray connects, which itself retries for 20 s up to minutes."""

import os
import re
import socket

from lsr_prod.cluster.token import read_token
from lsr_prod.credentials import without_credentials
from lsr_prod.errors import ConfigError

_HOST_PORT = re.compile(r"^(ray://)?([^:/\[\]]+|\[[^\]/]+\]):(\d+)$")
_SECONDS = 30.0
# The cheapest call of the control store, and of the server for Ray clients.
_CALLS = {False: "/ray.rpc.NodeInfoGcsService/CheckAlive", True: "/ray.rpc.RayletDriver/ClusterInfo"}


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
