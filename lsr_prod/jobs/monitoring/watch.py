"""Serve the metrics of a deployment for Prometheus, also while no job runs.

    lsr-prod watch INDEX [--host 127.0.0.1] [--port 9469] [--seconds 60] [--store.OPTION VALUE]
    lsr-prod watch --config deployment.yaml

INDEX is the folder or URI of an index that the job reindex publishes. GET /metrics returns the outcome and the age of
the last night, the gates that refused it, its share of quarantined rows, and the current publication: docs/metrics.md
lists them. The index is read when Prometheus asks, at most once in ``--seconds``.

The endpoint has no authentication and listens on loopback unless ``--host`` says otherwise. Runs until SIGINT or
SIGTERM, which is its end. Exit codes: 0 done, 1 failed, 2 bad usage or bad configuration.
"""

import argparse
import signal
import threading
from collections.abc import Sequence

from lsr_prod.errors import ConfigError, MissingExtraError
from lsr_prod.jobs.terminal.output import say
from lsr_prod.jobs.terminal.shell import CommandParser, add_store_option, exit_code, location, store_options


def parser() -> CommandParser:
    """Return the parser of the command line."""
    options = CommandParser("watch", __doc__)
    options.add_argument("index", metavar="INDEX", nargs="?", type=location, help="folder or URI of an index")
    options.add_argument("--config", metavar="FILE", help="YAML file of the deployment, instead of INDEX")
    options.add_argument("--host", default="127.0.0.1", help="address to listen on")
    options.add_argument("--port", type=_port, default=9469, help="port to listen on; 0: a free one")
    options.add_argument("--seconds", type=_seconds, default=60.0, help="shortest time between two reads of the index")
    add_store_option(options)
    return options


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


def main(argv: Sequence[str]) -> int:
    """Serve until interrupted; returns the exit code."""
    return exit_code("watch", lambda: _watch(argv), output_required=False)


def _watch(argv: Sequence[str]) -> int:
    given = parser().parse_args(argv)
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
    return 0
