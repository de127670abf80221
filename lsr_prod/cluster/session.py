"""Connection to Ray: the cluster of the job, or a local one that listens on loopback only."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

from lsr_prod.cluster.address import check_address
from lsr_prod.cluster.own_folder import in_own_folder, plain_python
from lsr_prod.cluster.serve_variables import set_serve_variables
from lsr_prod.cluster.temp_folder import check_temp_folder, cluster_address
from lsr_prod.cluster.token import prepare_token, resolve_mode
from lsr_prod.config import RaySettings
from lsr_prod.errors import ConfigError, MissingExtraError, WorkerError
from lsr_prod.logs import get_log

log = get_log(__name__)

_STARTS = 3
_TOO_SLOW = "timed out during startup"


@contextmanager
def ray_session(settings: RaySettings, *, variables: Mapping[str, str] | None = None) -> Iterator[None]:
    """Connect to Ray, and disconnect at the end; a local cluster ends with the session.

    The address is that of the settings, else ``RAY_ADDRESS`` (set by ``ray job submit``), else a local cluster is
    started, with its files in a folder of this user. An existing connection of the process is used and left open.
    ``RAY_AUTH_MODE`` is set to ``token`` unless it is set, and a cluster that demands no token is refused.

    Args:
        settings: the section ``ray``.
        variables: of the environment of the workers of this job, on a cluster; those of a local one inherit the
            environment of this process.

    Raises:
        ConfigError: the address does not answer, or the cluster demands no token or refuses that of this process. Of a
            local cluster, the token cannot be created, or the name of the temporary folder is too long or the folder
            belongs to another user.
        MissingExtraError: Ray is not installed.
        WorkerError: the machine is too busy to start a local cluster.
    """
    # Read by Ray at import. The first makes every listener of a local cluster bind to loopback, which --node-ip-address
    # does not. The second keeps the GPU variables of tasks that reserve no GPU.
    os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    set_serve_variables()
    # A job that one task ends reports its error. Ray would print tracebacks of the other tasks that failed meanwhile.
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("ray", "jobs") from error
    if ray.is_initialized():
        yield
        return
    address = cluster_address(settings)
    with in_own_folder() if address is None else nullcontext():
        check_temp_folder(settings)
        _connect(address, settings.num_cpus, variables)
        log.info("connected to Ray", extra={"fields": {"address": address or "local"}})
        try:
            yield
        finally:
            ray.shutdown()


def _connect(address: str | None, num_cpus: int | None, variables: Mapping[str, str] | None) -> None:
    import ray
    from ray._raylet import Config  # type: ignore[attr-defined]
    from ray.exceptions import AuthenticationError

    token = resolve_mode()
    Config.initialize("")  # reads the mode again: Ray may have been imported before it was set
    if address is None and token:
        prepare_token()
    elif address is not None:
        check_address(address, token=token)
    try:
        if address is None:
            _start_local(num_cpus)
        else:
            environment = {"env_vars": dict(variables)} if variables else None
            ray.init(address=address, log_to_driver=False, runtime_env=environment)
    except AuthenticationError as error:
        raise ConfigError(
            "RAY_AUTH_TOKEN_PATH", str(error).partition(". ")[0], "set it to a file with the token of the cluster"
        ) from error
    except ConnectionError as error:
        raise ConfigError(
            "ray.address", f"Ray does not connect to {address}: {error}", "check its nodes and its token"
        ) from error


def _start_local(num_cpus: int | None) -> None:
    """Start a local cluster; Ray gives its processes 30 s, which a busy machine may exceed."""
    import ray

    for attempt in range(1, _STARTS + 1):
        try:
            with without_reporter(), plain_python():
                ray.init(address="local", num_cpus=num_cpus, include_dashboard=False, log_to_driver=False)
        except Exception as error:  # Ray raises no class of its own
            if _TOO_SLOW not in str(error):
                raise
            ray.shutdown()
            if attempt == _STARTS:
                raise WorkerError(
                    f"Ray did not start on this machine in {_STARTS} attempts of 30 s; end other programs, or set "
                    "ray.address to a running cluster"
                ) from error
            log.warning("Ray started too slowly", extra={"fields": {"attempt": attempt, "of": _STARTS}})
        else:
            return


# Usage reports of a local Ray: without them, the process that sends them is not started.
#
# Ray starts it also where reports are off, and it then still asks the metadata servers of clouds (the name
# ``metadata.google.internal``, the address 169.254.169.254) which cloud the machine is in.


@contextmanager
def without_reporter() -> Iterator[None]:
    """Let ``ray.init(include_dashboard=False)`` start no API server, unless RAY_USAGE_STATS_ENABLED is 1.

    Without a dashboard, reports about usage are all that it does.
    """
    from ray._private.node import Node

    if os.environ.get("RAY_USAGE_STATS_ENABLED") == "1":
        yield
        return
    start = Node.start_api_server

    def start_no_server(self: Node, **options: Any) -> None:  # noqa: ARG001 - the signature of Ray
        assert options["include_dashboard"] is False

    Node.start_api_server = start_no_server  # type: ignore[method-assign]
    try:
        yield
    finally:
        Node.start_api_server = start  # type: ignore[method-assign]
