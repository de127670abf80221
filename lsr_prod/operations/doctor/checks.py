"""All checks, for this machine, for the stores of a deployment, and on request for each node of its cluster."""

import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from lsr_prod.config import Deployment
from lsr_prod.operations.doctor.finding import Finding
from lsr_prod.operations.doctor.machine import (
    check_disk,
    check_file_limit,
    check_gpus,
    check_kernels,
    check_shared_memory,
)
from lsr_prod.operations.doctor.network import check_cluster, check_ports, check_token
from lsr_prod.operations.doctor.packages import check_packages, check_python
from lsr_prod.operations.doctor.stores import check_checkpoints, check_store
from lsr_prod.storage import Store, is_remote
from lsr_prod.storage.artifacts import user_cache
from lsr_prod.storage.folders import absolute


def examine(deployment: Deployment, *, nodes: bool = False) -> Iterator[Finding]:
    """Run all checks, and yield each finding as soon as it is known.

    Args:
        deployment: its stores are checked, and its cluster if it names one.
        nodes: check the nodes of the cluster too.

    Raises:
        ConfigError: the cluster does not answer.
    """
    yield from examine_machine()
    yield check_token()
    address = deployment.ray.address or os.environ.get("RAY_ADDRESS")
    yield check_cluster(address) if address else check_ports()
    for field, place in _written(deployment).items():
        yield from check_store(field, Store(absolute(place), deployment.storage.options))
    work = deployment.train and deployment.train.work
    if work and is_remote(work):
        yield check_checkpoints("train.work", Store(work, deployment.storage.options))
    if nodes:
        yield from _examine_nodes(deployment)


def examine_machine() -> Iterator[Finding]:
    """Check the machine of this process."""
    yield check_python()
    yield from check_packages()
    yield check_disk("scratch", Path(tempfile.gettempdir()))
    yield check_disk("node cache", user_cache())
    yield check_file_limit()
    yield check_shared_memory()
    yield check_kernels()
    yield check_gpus()


def _examine_nodes(deployment: Deployment) -> Iterator[Finding]:
    from lsr_prod.cluster import ray_session
    from lsr_prod.cluster.nodes import on_every_node

    with ray_session(deployment.ray):
        for node, findings in on_every_node(_all_of_machine):
            yield from (replace(finding, check=f"{node}: {finding.check}") for finding in findings)


def _all_of_machine() -> list[Finding]:
    return list(examine_machine())


def _written(deployment: Deployment) -> dict[str, str]:
    """Return the places that the jobs of a deployment write, by the first setting that names them."""
    encode, index, export = deployment.encode, deployment.index, deployment.export
    places = {
        "encode.table": encode and encode.table,
        "encode.quarantine": encode and (encode.quarantine or f"{encode.table.rstrip('/')}_quarantine"),
        "index.output": index and index.output,
        "index.publish_to": index and index.publish_to,
        "export.output": export and export.output,
        "train.work": deployment.train and deployment.train.work,
        "train.output": deployment.train and deployment.train.output,
        "maintain.table": deployment.maintain and deployment.maintain.table,
    }
    found: dict[str, str] = {}
    for field, place in places.items():
        if place and place not in found.values():
            found[field] = place
    return found
