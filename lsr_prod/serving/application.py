"""The Ray Serve application: a router, and one deployment for each shard group if there are several."""

import os
from collections.abc import Mapping

from ray import serve
from ray.serve import Application

from lsr_prod.cluster.address import HAPROXY, check_serve_variables
from lsr_prod.config import ServeSettings, load_deployment
from lsr_prod.errors import ConfigError
from lsr_prod.search.server import RETRY_AFTER_S
from lsr_prod.serving import client, haproxy, replica
from lsr_prod.serving.groups import UnavailableError
from lsr_prod.serving.router import Router
from lsr_prod.storage.signatures import TRUSTED_KEYS, trusted_keys

# A replica that reports a result to a killed router handles no other call until Ray knows that the router is dead: two
# to three seconds by default.
_ROUTER_LOSS = {
    "RAY_grpc_client_check_connection_status_interval_milliseconds": "100",
    "RAY_core_worker_rpc_server_reconnect_timeout_base_s": "0",
}
_SPARE = 16  # requests that reach a full router, to be refused, and health checks


def build_application(settings: ServeSettings, options: Mapping[str, str] | None = None) -> Application:
    """Build the application for ``serve.run``. Its processes trust the keys that this process trusts.

    Args:
        settings: the section ``serve``.
        options: options of the object store.

    Raises:
        ConfigError: a key is malformed.
        MissingExtraError: there are keys and cryptography is not installed.
    """
    trusted = os.environ[TRUSTED_KEYS] if trusted_keys() else None  # public keys
    # One group needs no second process: its routers search themselves.
    numbers = range(settings.shard_groups) if settings.shard_groups > 1 else ()
    process = {"settings": settings, "options": options, "trusted_keys": trusted}
    groups = [
        serve.deployment(
            name=f"shards-{group}",
            num_replicas=settings.replicas,
            ray_actor_options={"num_cpus": settings.cpus, "runtime_env": {"env_vars": _ROUTER_LOSS}},
            max_ongoing_requests=settings.concurrency * settings.router_count,
        )(replica.ShardReplica).bind(group, **process)
        for group in numbers
    ]
    admitted = settings.concurrency + settings.queue
    router = serve.deployment(
        name="router",
        num_replicas=settings.router_count,
        ray_actor_options={"num_cpus": settings.cpus},
        # The router refuses requests above its own limit; Ray Serve refuses what does not even reach it.
        max_ongoing_requests=admitted + _SPARE,
        max_queued_requests=admitted,
        backpressure_config={"status_code": 503, "retry_after_s": RETRY_AFTER_S},
    )
    return router(Router).bind(*groups, **process)


def application_of_file(arguments: Mapping[str, str]) -> Application:
    """Build the application of a deployment file: the ``import_path`` of a configuration of Ray Serve."""
    if set(arguments) != {"config"}:
        raise ConfigError("args", f"it has {sorted(arguments) or 'nothing'}", "give config: FILE, and nothing else")
    deployment = load_deployment(
        ["--config", arguments["config"]], job="serve", description="", needs=("serve",), optional=("storage",)
    )
    assert deployment.serve is not None
    return build_application(deployment.serve, deployment.storage.options)


def start(settings: ServeSettings, options: Mapping[str, str] | None = None) -> client.ServedSearcher:
    """Start the application on the connected cluster, or update it; return when it is ready.

    The HTTP endpoint is optional and listens on the configured host and port; gRPC is off.

    Args:
        settings: the section ``serve``.
        options: options of the object store.

    Raises:
        ConfigError: a variable of Ray Serve would open a port, or this version of Ray opens one in an unknown way.
        UnavailableError: a deployment does not start; the message has the reason.
    """
    check_serve_variables()
    http = settings.http_port is not None
    if http and os.environ.get(HAPROXY) == "1":
        haproxy.check_haproxy()
    serve.start(
        proxy_location="HeadOnly" if http else "Disabled",
        http_options={"host": settings.http_host, "port": settings.http_port} if http else {"host": "127.0.0.1"},
    )
    try:
        handle = serve.run(build_application(settings, options), name=settings.name, route_prefix="/" if http else None)
    except RuntimeError as error:
        raise UnavailableError(f"the application {settings.name} did not start: {_reason(settings.name)}") from error
    return client.ServedSearcher(handle)


def deployments(name: str) -> Mapping[str, str]:
    """Return state and replicas of every deployment of a running application, for operators."""
    application = serve.status().applications[name]
    found = {}
    for deployment, state in sorted(application.deployments.items()):
        replicas = [f"{count} {getattr(kind, 'value', kind).lower()}" for kind, count in state.replica_states.items()]
        found[deployment] = f"{state.status.value.lower()}, {', '.join(replicas)}"
    return found


def _reason(name: str) -> str:
    """Return the last error line of a failed application."""
    application = serve.status().applications[name]
    messages = [application.message, *(state.message for state in application.deployments.values())]
    lines = [line.strip() for message in messages for line in message.splitlines() if "Error: " in line]
    return lines[-1] if lines else application.message
