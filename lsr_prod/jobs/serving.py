"""The commands ``serve`` and ``watch``: the service of a deployment, and its metrics."""

import argparse
import signal
import threading
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from lsr_prod.errors import ConfigError, MissingExtraError
from lsr_prod.jobs.terminal.output import say
from lsr_prod.jobs.terminal.run import Job
from lsr_prod.jobs.terminal.shell import Command, CommandParser, add_place, add_store_option, store_options

if TYPE_CHECKING:
    from lsr_prod.config import Deployment


def _add_serve_options(parser: CommandParser) -> None:
    parser.add_argument("--local", action="store_true", help="serve on this machine until interrupted")


@partial(Job, "serve", needs=("serve",), add_options=_add_serve_options)
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


def _add_watch_options(parser: CommandParser) -> None:
    add_place(parser, "INDEX", "folder or URI of an index")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=_port, default=9469, help="port to listen on; 0: a free one")
    parser.add_argument("--seconds", type=_seconds, default=60.0, help="shortest time between two reads of the index")
    add_store_option(parser)


@partial(Command, "watch", add_options=_add_watch_options, output_required=False)
def watch(given: argparse.Namespace) -> None:
    """Serve the metrics of a deployment for Prometheus, also while no job runs.

        lsr-prod watch INDEX [--host 127.0.0.1] [--port 9469] [--seconds 60] [--store.OPTION VALUE]
        lsr-prod watch --config deployment.yaml

    INDEX is the folder or URI of an index that the job reindex publishes. GET /metrics returns the outcome and the age of
    the last night, the gates that refused it, its share of quarantined rows, and the current publication: docs/metrics.md
    lists them. The index is read when Prometheus asks, at most once in ``--seconds``.

    The endpoint has no authentication and listens on loopback unless ``--host`` says otherwise. Runs until SIGINT or
    SIGTERM, which is its end. Exit codes: 0 done, 1 failed, 2 bad usage or bad configuration.
    """
    place, options = given.index, store_options(given)
    if (place is None) == (given.config is None):
        raise ConfigError("INDEX", "give either INDEX or --config", "lsr-prod watch INDEX")
    if place is None:
        from lsr_prod.config import load_deployment

        deployment = load_deployment(["--config", given.config], job="watch", description="", needs=("index",))
        assert deployment.index is not None
        place, options = deployment.index.output, deployment.storage.options
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
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    say(f"metrics of {place} at http://{given.host}:{server.server_port}/metrics, until interrupted")
    stop.wait()
    server.shutdown()
    thread.join()
