"""Ceph's RADOS gateway with a cluster of one monitor, one manager and one memory store, in a folder of its own.

    python -m tests.objectstore.ceph PORT [--host 127.0.0.1] [--folder FOLDER]

All daemons listen on the host only. Needs Debian's packages, see ``tests.objectstore.packages``. The command prints
``ready`` when the gateway answers, and runs until it is terminated; the key of its user is ``testing``, as the secret.
"""

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["Ceph", "ceph_gateway", "ceph_version"]

_STARTED_S = 120
_KEYS = {
    "mon.": ["mon", "allow *"],
    "client.admin": ["mon", "allow *", "osd", "allow *", "mgr", "allow *"],
    "osd.0": ["mon", "allow profile osd", "mgr", "allow profile osd", "osd", "allow *"],
    "mgr.x": ["mon", "allow profile mgr", "osd", "allow *"],
    "client.rgw": ["mon", "allow rw", "osd", "allow rwx", "mgr", "allow rw"],
}
_CONFIGURATION = """\
[global]
fsid = {fsid}
mon host = {monitor}
public addr = {host}
cluster addr = {host}
keyring = {folder}/keyring
run dir = {folder}
admin socket = {folder}/$name.asok
pid file = {folder}/$name.pid
log file = {folder}/$name.log
mon data = {folder}/mon
osd data = {folder}/osd
mgr data = {folder}/mgr
rgw data = {folder}/rgw
mon allow pool size one = true
mon data avail warn = 2
mon data avail crit = 1
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 4
osd pool default pgp num = 4
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
osd objectstore = memstore
memstore device bytes = 8589934592
debug rgw = 0/0
debug osd = 0/0
debug ms = 0/0
rgw frontends = beast endpoint={host}:{port}
"""


class Ceph:
    """The daemons and their folder.

    Attributes:
        endpoint: URL of the gateway.
    """

    def __init__(self, folder: Path, host: str, port: int) -> None:
        self._folder, self.endpoint = folder, f"http://{host}:{port}"
        self._running: list[tuple[str, subprocess.Popen[bytes]]] = []
        self._fsid = str(uuid.uuid4())
        for name in ("mon", "osd", "mgr", "rgw"):
            (folder / name).mkdir(parents=True)
        self._monitor = f"[v2:{host}:{_free_port(host)}]"
        text = _CONFIGURATION.format(fsid=self._fsid, host=host, port=port, monitor=self._monitor, folder=folder)
        (folder / "ceph.conf").write_text(text)

    def start(self) -> None:
        """Start the daemons one after the other, and create the user."""
        keyring, monitors, identity = self._folder / "keyring", self._folder / "monmap", str(uuid.uuid4())
        for number, (name, rights) in enumerate(_KEYS.items()):
            granted = [word for at in range(0, len(rights), 2) for word in ("--cap", *rights[at : at + 2])]
            create = [] if number else ["--create-keyring"]
            self._run("ceph-authtool", *create, str(keyring), "--gen-key", "-n", name, *granted)
        self._run("monmaptool", "--create", "--fsid", self._fsid, "--addv", "a", self._monitor, str(monitors))
        self._run("ceph-mon", "--mkfs", "-i", "a", "--monmap", str(monitors), "--keyring", str(keyring))
        self._daemon("ceph-mon", "-i", "a")
        self._run("ceph", "osd", "new", identity)  # waits for the monitor
        self._run("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", identity, "--monmap", str(monitors))
        self._daemon("ceph-osd", "-i", "0")
        self._daemon("ceph-mgr", "-i", "x")
        self._daemon("radosgw", "-n", "client.rgw")
        self._wait()
        user = ["--uid", "lsr", "--display-name", "lsr", "--access-key", "testing", "--secret-key", "testing"]
        self._run("radosgw-admin", "user", "create", *user)

    def stop(self) -> None:
        """Terminate the daemons that this object started, the gateway first."""
        for _, daemon in reversed(self._running):
            daemon.terminate()
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait(10)

    def restart_gateway(self) -> None:
        """Kill the gateway as a crash does, start it again, and wait until it answers."""
        _, gateway = self._running.pop()
        gateway.kill()
        gateway.wait(10)
        self._daemon("radosgw", "-n", "client.rgw")
        self._wait()

    def check(self) -> None:
        """Raise an error with the logs if a daemon has ended."""
        for name, daemon in self._running:
            if daemon.poll() is not None:
                log = "\n".join(path.read_text(errors="replace")[-1500:] for path in self._folder.glob("*.log"))
                raise RuntimeError(f"{name} ended with exit code {daemon.returncode}: {log}")

    def _wait(self) -> None:
        end = time.monotonic() + _STARTED_S
        while time.monotonic() < end:
            self.check()
            try:
                urllib.request.urlopen(self.endpoint, timeout=2).close()
            except OSError:
                time.sleep(0.2)
            else:
                return
        raise TimeoutError(f"{self.endpoint} does not answer after {_STARTED_S} s")

    def _run(self, *command: str) -> None:
        done = subprocess.run(
            command, env=self._environment(), capture_output=True, text=True, timeout=_STARTED_S, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command[:3])} ended with exit code {done.returncode}: {done.stderr[-1500:]}")

    def _daemon(self, *command: str) -> None:
        with (self._folder / f"{command[0]}.log").open("ab") as log:
            daemon = subprocess.Popen([*command, "-f"], env=self._environment(), stdout=log, stderr=log)
        self._running.append((command[0], daemon))

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "CEPH_CONF": str(self._folder / "ceph.conf")}


@contextmanager
def ceph_gateway(folder: Path, port: int | None = None, host: str = "127.0.0.1") -> Iterator[Ceph]:
    """Start the gateway, yield its cluster, and stop what was started.

    Args:
        folder: of its configuration, keys and logs; it must not exist.
        port: of the gateway; None: a free one.
        host: the address of all daemons.
    """
    port = port or _free_port(host)
    cluster = Ceph(folder, host, port)
    try:
        cluster.start()
        yield cluster
        cluster.check()
    finally:
        cluster.stop()


def ceph_version() -> str:
    """Return name and version of the gateway, such as ``Ceph RADOS Gateway 16.2.15``."""
    shown = subprocess.run(["radosgw", "--version"], capture_output=True, text=True, check=True).stdout
    return f"Ceph RADOS Gateway {shown.split()[2]}"


def _free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def main() -> None:
    """Run the gateway until this process is terminated."""
    parser = argparse.ArgumentParser(prog="python -m tests.objectstore.ceph")
    parser.add_argument("port", type=int)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--folder", type=Path, help="a folder to create; default: below the temporary folder")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with (
        tempfile.TemporaryDirectory(prefix="lsr-ceph-") as name,
        ceph_gateway(given.folder or Path(name) / "ceph", given.port, given.host),
    ):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        signal.pause()


if __name__ == "__main__":
    main()
