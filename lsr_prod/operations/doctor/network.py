"""Token and ports of Ray on this machine."""

import os
import socket
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from lsr_prod.cluster.address import check_address
from lsr_prod.errors import ConfigError
from lsr_prod.operations.doctor.finding import Finding
from lsr_prod.storage.local import home_folder

_PORTS = (6379, 8265, 10001)
_SHORTEST_TOKEN = 16


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
