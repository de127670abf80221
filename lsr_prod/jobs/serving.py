"""The commands ``serve``, ``mcp`` and ``watch``: the service of a deployment, its tools for agents, and its metrics."""

import argparse
import signal
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from lsr_prod.errors import ConfigError, MissingExtraError
from lsr_prod.extras import contrib
from lsr_prod.jobs.terminal import output, shell

if TYPE_CHECKING:
    from lsr_prod.config import Deployment


def _add_serve_options(parser: shell.CommandParser) -> None:
    parser.add_argument("--local", action="store_true", help="serve on this machine until interrupted")


@partial(shell.Job, "serve", needs=("serve",), add_options=_add_serve_options)
def serve(deployment: "Deployment", given: argparse.Namespace) -> Mapping[str, Any]:
    """Serve a published index from a Ray cluster and follow its publications.

        lsr-prod serve --config deployment.yaml [--local] [--serve.shard_groups 3 --serve.http_port 8000]

    Reads the sections ``serve``, ``ray`` and ``storage``. Starts the application on the cluster of ``ray.address`` and
    leaves it running; started again, it applies the new settings. With ``--local`` it starts a cluster on this machine that
    listens on loopback only, serves until it is interrupted, and stops both.

    Prints the table of deployments when queries are answered, and at the end one line ``RESULT {json}``.
    Exit codes: 0 done, 1 failed, 2 bad configuration.
    """
    from lsr_prod.jobs.terminal.tables import print_table
    from lsr_prod.serving.job import serve_index

    ready = partial(print_table, "serving until interrupted") if given.local else None
    return serve_index(deployment, local=given.local, ready=ready)


def _add_mcp_options(parser: shell.CommandParser) -> None:
    shell.add_place(parser, "INDEX", "folder or URI of an index")
    parser.add_argument("--http", type=_port, metavar="PORT", help="serve HTTP on this port of loopback; 0: a free one")
    shell.add_store_option(parser)


@partial(shell.Command, "mcp", add_options=_add_mcp_options, output_required=False)
def mcp(given: argparse.Namespace) -> int:
    """Serve an index to agents as tools of the Model Context Protocol: search, read, explain, count. Nothing is written.

        lsr-prod mcp INDEX [--http 8080] [--store-option NAME=VALUE]
        lsr-prod mcp --config deployment.yaml

    Speaks the protocol on stdin and stdout, for a client that starts it, until stdin is closed. With ``--http`` it serves
    http://127.0.0.1:PORT/mcp until SIGINT or SIGTERM, to clients that send the token of the variable LSR_PROD_MCP_TOKEN, of
    16 characters or more, as ``Authorization: Bearer TOKEN``. It listens on loopback only.

    With ``--config``, the section ``serve`` names the index. New publications are followed. Answers have at most 50 hits
    and 64 KiB. Exit codes: 0 done, 1 failed, 2 bad usage or bad configuration.
    """
    deployment = shell.deployment_of(given, "mcp", "INDEX", "serve")
    from lsr_prod.search.searcher import Searcher

    agents = contrib("agents.server")
    place, options = given.index, shell.store_options(given)
    token = None if given.http is None else agents.read_token()
    if deployment is not None:
        assert deployment.serve is not None
        place, options = deployment.serve.index, {**deployment.storage.options, **options}
    output.log_to_stderr()
    with Searcher.open(place, storage_options=options) as searcher:
        searcher.follow()
        if token is None:
            agents.serve_stdio(searcher)
            return 0
        server = agents.HttpServer(searcher, given.http, token)
        output.say(f"tools of {place} at {server.url}, until interrupted")
        _wait(lambda: server.is_alive)
        failed = not server.is_alive
        server.close()
    return int(failed)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text} is no port; give 0 to 65535")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 86_400:
        raise argparse.ArgumentTypeError(f"{text} is no number of seconds; give 0 to 86400")
    return seconds


def _add_watch_options(parser: shell.CommandParser) -> None:
    shell.add_place(parser, "INDEX", "folder or URI of an index")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=_port, default=9469, help="port to listen on; 0: a free one")
    parser.add_argument("--seconds", type=_seconds, default=60.0, help="shortest time between two reads of the index")
    shell.add_store_option(parser)


@partial(shell.Command, "watch", add_options=_add_watch_options, output_required=False)
def watch(given: argparse.Namespace) -> None:
    """Serve the metrics of a deployment for Prometheus, also while no job runs.

        lsr-prod watch INDEX [--host 127.0.0.1] [--port 9469] [--seconds 60] [--store-option NAME=VALUE]
        lsr-prod watch --config deployment.yaml

    INDEX is the folder or URI of an index that the job reindex publishes. GET /metrics returns the outcome and the age of
    the last night, the gates that refused it, its share of quarantined rows, and the current publication: docs/metrics.md
    lists them. The index is read when Prometheus asks, at most once in ``--seconds``.

    The endpoint has no authentication and listens on loopback unless ``--host`` says otherwise. Runs until SIGINT or
    SIGTERM, which is its end. Exit codes: 0 done, 1 failed, 2 bad usage or bad configuration.
    """
    place, options = given.index, shell.store_options(given)
    if (place is None) == (given.config is None):
        raise ConfigError("INDEX", "give either INDEX or --config", "lsr-prod watch INDEX")
    if place is None:
        from lsr_prod.config import load_deployment

        deployment = load_deployment(["--config", given.config], job="watch", description="", needs=("index",))
        assert deployment.index is not None
        place, options = deployment.index.output, {**deployment.storage.options, **options}
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ImportError as error:
        raise MissingExtraError("prometheus_client", "jobs") from error
    from lsr_prod.operations.nights import DeploymentMetrics
    from lsr_prod.storage import Store
    from lsr_prod.storage.folders import absolute

    registry = CollectorRegistry()
    registry.register(DeploymentMetrics(Store(absolute(place), options), seconds=given.seconds))
    try:
        server, thread = start_http_server(given.port, given.host, registry)
    except OSError as error:
        raise ConfigError("--port", f"{given.host}:{given.port}: {error.strerror}", "give a free port") from error
    output.say(f"metrics of {place} at http://{given.host}:{server.server_port}/metrics, until interrupted")
    _wait(lambda: True)
    server.shutdown()
    thread.join()


def _wait(is_alive: Callable[[], bool]) -> None:
    """Return after SIGINT or SIGTERM, or when the server has ended."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    while is_alive() and not stop.wait(1):
        pass
