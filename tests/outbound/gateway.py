"""The way out of a network of machines: everything that takes it is recorded, and nothing arrives."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.namespaces import Machine, Network

__all__ = ["Gateway", "gateway"]

_ADDRESS = "10.177.0.253"
_RESOLVER = f"echo nameserver {_ADDRESS} > /tmp/resolv.conf && mount --bind /tmp/resolv.conf /etc/resolv.conf"


class Gateway:
    """The recorder of a network."""

    def __init__(self, network: Network, log: Path) -> None:
        self._network, self._log = network, log
        _ip("-n", network.switch, "address", "add", f"{_ADDRESS}/24", "dev", "switch")
        _ip("-n", network.switch, "route", "add", "unreachable", "default")
        self._inside("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")  # so that connections are refused at once
        with log.open("wb") as out:
            command = ["ip", "netns", "exec", network.switch, sys.executable]
            self._recorder = subprocess.Popen(
                [*command, str(Path(__file__).with_name("recorder.py")), _ADDRESS], stdout=out
            )
        while not self._log.read_text().startswith("ready"):
            assert self._recorder.poll() is None, "the recorder does not start"
            time.sleep(0.05)

    def connect(self, machine: Machine) -> None:
        """Make this the default route and the DNS of a machine."""
        for command in (["ip", "route", "add", "default", "via", _ADDRESS], ["sh", "-c", _RESOLVER]):
            done = machine.run(command)
            assert done.returncode == 0, done.stderr

    def recorded(self) -> set[str]:
        """Return the lines of the recorder so far: ``name NAME``, ``tcp ADDRESS PORT``, ``udp ADDRESS PORT``."""
        time.sleep(0.5)  # what was sent just now
        assert self._recorder.poll() is None, "the recorder has ended"
        return set(self._log.read_text().splitlines()[1:])

    def close(self) -> None:
        """End the recorder."""
        self._recorder.kill()
        self._recorder.wait()

    def _inside(self, *command: str) -> None:
        subprocess.run(["ip", "netns", "exec", self._network.switch, *command], check=True, capture_output=True)


@contextmanager
def gateway(network: Network, log: Path) -> Iterator[Gateway]:
    """Open a way out of a network, whose recorder writes to a file."""
    made = Gateway(network, log)
    try:
        yield made
    finally:
        made.close()


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
