"""The serve job: start the application, on the deployment's cluster or on a local one until interrupted."""

import os
import signal
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from lsr_prod.cluster import ray_session
from lsr_prod.cluster.address import check_serve_variables, serve_variables
from lsr_prod.config import Deployment, RaySettings, ServeSettings
from lsr_prod.errors import ConfigError, MissingExtraError, PublicationError
from lsr_prod.storage import Store, folders, is_remote, publications
from lsr_prod.storage.formats.index_format import Publication


def serve_index(
    deployment: Deployment, *, local: bool = False, ready: Callable[[Mapping[str, Any]], None] | None = None
) -> dict[str, Any]:
    """Serve the index of the section ``serve``.

    Returns:
        The table of deployments.
    """
    assert deployment.serve is not None
    settings = deployment.serve.model_copy(update={"index": folders.absolute(deployment.serve.index)})
    options = deployment.storage.options
    publication = _published(settings, options)
    check_serve_variables()
    settings = _fit_cluster(deployment.ray, settings, local=local)
    with ray_session(deployment.ray, variables=serve_variables()):
        try:
            from ray import serve

            from lsr_prod.serving import deployments, start
        except ImportError as error:
            raise MissingExtraError("ray.serve", "jobs") from error
        try:
            start(settings, options)
            table = {"publication": publication.number, "version": publication.version, **deployments(settings.name)}
            if ready is not None:
                ready(table)
            if local:
                _wait_for_signal()
        finally:
            if local:
                serve.shutdown()  # type: ignore[no-untyped-call]
    return table


def _published(settings: ServeSettings, options: dict[str, str]) -> Publication:
    remedy = "give the folder or URI of a published index"
    if not is_remote(settings.index) and not Path(settings.index).is_dir():
        raise ConfigError("serve.index", f"{settings.index} is not a folder", remedy)
    try:
        return publications.current_publication(Store(settings.index, options))
    except PublicationError as error:
        raise ConfigError("serve.index", str(error), remedy) from error


def _fit_cluster(ray: RaySettings, settings: ServeSettings, *, local: bool) -> ServeSettings:
    """Return the settings; with ``local``, with one router if there are no cores for the default number."""
    address = ray.address or os.environ.get("RAY_ADDRESS")
    if not local and not address:
        raise ConfigError("ray.address", "no cluster is set", "set its address, or serve on this machine with --local")
    if local and address:
        problem = f"{address} is set, but --local starts its own cluster"
        raise ConfigError("ray.address", problem, "unset it (or RAY_ADDRESS)")
    cores = ray.num_cpus or os.cpu_count() or 1
    if local and settings.routers is None and settings.reserved_cpus > cores:
        settings = settings.model_copy(update={"routers": 1})
    reserved = settings.reserved_cpus
    if local and reserved > cores:  # Serve would wait forever
        problem = f"{settings.cpus} for each replica and router is {reserved:g} in total, but there are {cores} cores"
        raise ConfigError("serve.cpus", problem, f"give {cores / reserved * settings.cpus * 0.99:.2f} or less")
    return settings


def _wait_for_signal() -> None:
    """Wait for SIGINT or SIGTERM, then restore the previous handlers."""
    stop = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        stop.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
