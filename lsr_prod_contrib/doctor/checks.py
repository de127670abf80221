"""All checks, for this machine, for the stores of a deployment, and on request for each node of its cluster."""

import os
import socket
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from lsr_prod.cluster.address import check_address
from lsr_prod.config import Deployment
from lsr_prod.config.section import quarantine_uri
from lsr_prod.errors import ConfigError
from lsr_prod.storage import Store, is_remote
from lsr_prod.storage.artifacts import user_cache
from lsr_prod.storage.disk import home_folder
from lsr_prod.storage.folders import absolute
from lsr_prod_contrib.doctor.machine import (
    Finding,
    check_disk,
    check_file_limit,
    check_gpus,
    check_kernels,
    check_shared_memory,
)
from lsr_prod_contrib.doctor.stores import check_checkpoints, check_store

_NAME = "lsr_prod"
_NEWEST = (3, 14)  # exclusive: not tried beyond
_RUNTIMES = ("onnxruntime", "onnxruntime-gpu")
Version = Callable[[str], str | None]
_PORTS = (6379, 8265, 10001)
_SHORTEST_TOKEN = 16


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
    from lsr_prod.cluster.workers import on_every_node

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
        "encode.quarantine": encode and quarantine_uri(encode.quarantine, encode.table),
        "index.output": index and index.output,
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


def installed_version(name: str) -> str | None:
    """Return the version of an installed package; None: it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def check_python(version: tuple[int, int] = sys.version_info[:2]) -> Finding:
    """Check the version of Python."""
    found = ".".join(map(str, version))
    if version < (3, 11):
        return Finding("python", "fault", found, "use Python 3.11 or newer")
    if version >= _NEWEST:
        return Finding("python", "warning", found, "lsr_prod was not tried with this version; use an older one")
    return Finding("python", "ok", found)


def check_packages(version: Version = installed_version) -> Iterator[Finding]:
    """Check each requirement of lsr_prod that is installed, and the ONNX Runtime."""
    yield _check_requirements(version)
    runtimes = [name for name in _RUNTIMES if version(name) is not None]
    if len(runtimes) == len(_RUNTIMES):
        yield Finding(
            "onnxruntime",
            "fault",
            "onnxruntime and onnxruntime-gpu are both installed, and overwrite each other",
            "uninstall both, then install the one for this machine",
        )
    elif not runtimes:
        yield Finding("onnxruntime", "warning", "not installed: no text can be encoded", "install lsr_prod[cpu]")
    else:
        yield Finding("onnxruntime", "ok", f"{runtimes[0]} {version(runtimes[0])}")


def _check_requirements(version: Version) -> Finding:
    try:
        requirements = metadata.requires(_NAME) or []
    except metadata.PackageNotFoundError:  # a source tree, such as a working directory of Ray
        return Finding(
            "packages",
            "warning",
            "not compared with the requirements: lsr_prod runs from a source tree without package metadata",
            "install lsr_prod, or the packages of requirements/",
        )
    wrong = []
    for text in requirements:
        needed = Requirement(text)
        found = version(needed.name)
        core = needed.marker is None or needed.marker.evaluate({"extra": ""})
        if found is None and core:
            wrong.append(f"{needed.name} is not installed")
        elif found is not None and not needed.specifier.contains(found, prereleases=True):
            wrong.append(f"{needed.name} {found} is not {needed.specifier}")
    if wrong:
        return Finding(
            "packages", "fault", "; ".join(sorted(set(wrong))), "install the packages of requirements/ again"
        )
    return Finding("packages", "ok", f"lsr_prod {version(_NAME)} and its requirements")


def check_token(environment: Mapping[str, str] = os.environ, home: Path | None = None) -> Finding:
    """Check that Ray demands a token, and that only this user can read it."""
    if (environment.get("RAY_AUTH_MODE") or "token").lower() != "token":
        return Finding(
            "token",
            "fault",
            f"RAY_AUTH_MODE={environment['RAY_AUTH_MODE']}: whoever reaches a port of Ray runs code on the cluster",
            "set RAY_AUTH_MODE=token",
        )
    if token := environment.get("RAY_AUTH_TOKEN"):
        if len(token) < _SHORTEST_TOKEN:
            return Finding(
                "token", "fault", "RAY_AUTH_TOKEN is short", f"use {_SHORTEST_TOKEN} random characters or more"
            )
        return Finding("token", "ok", "in RAY_AUTH_TOKEN")
    given = environment.get("RAY_AUTH_TOKEN_PATH")
    path = Path(given) if given else (home or home_folder("RAY_AUTH_TOKEN_PATH")) / ".ray" / "auth_token"
    try:
        mode = path.stat().st_mode
    except OSError:
        if given:
            return Finding("token", "fault", f"{path} is missing", "create the file, or unset RAY_AUTH_TOKEN_PATH")
        return Finding("token", "ok", "none yet; a local Ray makes one")
    if stat.S_IMODE(mode) & 0o077 and all(stat.S_IMODE(one.stat().st_mode) & 0o011 for one in path.absolute().parents):
        return Finding("token", "fault", f"others can read {path}", f"chmod 600 {path}")
    return Finding("token", "ok", f"in {path}")


def check_ports(ports: Sequence[int] = _PORTS) -> Finding:
    """Check that the ports of a head are free on loopback, if a cluster is to be started on this machine."""
    taken = []
    for port in ports:
        with socket.socket() as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                taken.append(str(port))
    if taken:
        return Finding(
            "ports",
            "warning",
            f"in use: {', '.join(taken)}",
            "a head started here needs other ports; a local Ray and a running cluster do not",
        )
    return Finding("ports", "ok", f"{', '.join(map(str, ports))} are free")


def check_cluster(address: str) -> Finding:
    """Check that the cluster of the deployment answers, demands a token and accepts that of this process."""
    try:
        check_address(address, token=os.environ.get("RAY_AUTH_MODE", "").lower() != "disabled")
    except ConfigError as error:
        return Finding("cluster", "fault", error.problem, error.remedy)
    return Finding("cluster", "ok", f"{address} answers")
