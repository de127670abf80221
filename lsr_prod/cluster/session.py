"""Connection to Ray: the cluster of the job, or a local one that listens on loopback only."""

import logging
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from lsr_prod.cluster.token import prepare_token
from lsr_prod.config import RaySettings
from lsr_prod.errors import ConfigError, MissingExtraError

__all__ = ["ray_session"]

log = logging.getLogger(__name__)
_HOST_PORT = re.compile(r"^(?:ray://)?([^:/]+):(\d+)$")


@contextmanager
def ray_session(settings: RaySettings) -> Iterator[None]:
    """Connect to Ray, and disconnect at the end; a local cluster ends with the session.

    The address is that of the settings, else ``RAY_ADDRESS`` (set by ``ray job submit``), else a local cluster is
    started. An existing connection of the process is used and left open.

    Raises:
        ConfigError: the address does not answer, or the token of a local cluster cannot be created.
        MissingExtraError: Ray is not installed.
    """
    # Read by Ray at import. The first makes every listener of a local cluster bind to loopback, which --node-ip-address
    # does not. The second keeps the GPU variables of tasks that reserve no GPU.
    os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("ray", "jobs") from error
    if ray.is_initialized():
        yield
        return
    address = settings.address or os.environ.get("RAY_ADDRESS")
    if address:
        _require_listener(address)
        ray.init(address=address, log_to_driver=False)
    else:
        prepare_token()
        ray.init(address="local", num_cpus=settings.num_cpus, include_dashboard=False, log_to_driver=False)
    log.info("connected to Ray", extra={"fields": {"address": address or "local"}})
    try:
        yield
    finally:
        ray.shutdown()


def _require_listener(address: str) -> None:
    # Ray itself retries an address without a listener for minutes.
    match = _HOST_PORT.match(address)
    if match is None:
        return
    try:
        socket.create_connection((match[1], int(match[2])), timeout=5).close()
    except OSError as error:
        raise ConfigError(
            "ray.address", f"nothing answers at {address}", "start the cluster, or leave the field unset"
        ) from error
