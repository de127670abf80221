"""Machines on one computer: each has its own network, mounts and host name, and shares no writable folder.

The root file system is read-only on a machine, so that it has the installed program as from an image; ``/tmp`` with the
home folder, ``/var/tmp`` and ``/dev/shm`` are its own, and empty but for a checkout or an environment of Python there.
Every machine has one address on a private network.
Needs root; ``missing`` says why the computer cannot do this.
"""

import contextlib
import os
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.rights import why_not_root

__all__ = ["ROOT", "Machine", "Network", "missing", "network"]

ROOT = Path(__file__).parents[2]
_HOST = "10.177.0.254/24"
_SETUP = """
set -e
hostname {name}
mount -o remount,bind,ro /
for folder in /tmp /var/tmp /dev/shm; do
    mount -t tmpfs -o mode=1777 tmpfs /mnt
    for kept in {kept}; do
        case $kept in $folder/*) ;; *) continue ;; esac
        mkdir -p "/mnt${{kept#$folder}}"
        mount --bind "$kept" "/mnt${{kept#$folder}}"
        mount -o remount,bind,ro "/mnt${{kept#$folder}}"
    done
    mount -n --move /mnt $folder
done
mkdir -p /tmp/home /tmp/empty
for hidden in {hidden}; do
    if [ -d "$hidden" ]; then mount --bind /tmp/empty "$hidden"; else mount --bind /dev/null "$hidden"; fi
done
echo ready
exec sleep 1000000
"""


def missing() -> str:
    """Return why machines cannot be made on this computer, or ""."""
    if reason := why_not_root():
        return reason
    absent = [tool for tool in ("ip", "unshare", "nsenter") if shutil.which(tool) is None]
    if absent:
        return f"{', '.join(absent)} is not installed"
    probe = subprocess.run(
        ["unshare", "--net", "--mount", "--uts", "true"], check=False, capture_output=True, text=True
    )
    return probe.stderr.strip()


class Machine:
    """A machine of a ``Network``.

    Attributes:
        name: its host name.
        address: its IP address.
    """

    def __init__(self, network: "Network", name: str, number: int) -> None:
        self.name, self.address = name, f"10.177.0.{number}"
        self._space, self._network = f"{network.name}-{name}", network
        self._port = f"p{number}"
        self._started: list[subprocess.Popen[bytes]] = []
        with contextlib.ExitStack() as made:
            _ip("netns", "add", self._space)
            made.callback(_ip, "netns", "delete", self._space)
            self._connect()
            self._holder = self._hold([*map(str, network.hidden)])
            made.callback(self._end_holder)
            assert self._holder.stdout is not None
            assert self._holder.stderr is not None
            if self._holder.stdout.readline() != "ready\n":
                raise AssertionError(f"the namespaces could not be set up: {self._holder.stderr.read()}")
            self._made = made.pop_all()

    def _connect(self) -> None:
        switch = self._network.switch
        _ip(*f"link add {self._port} netns {switch} type veth peer name eth0 netns {self._space}".split())
        _ip("-n", switch, "link", "set", self._port, "master", "switch", "up")
        _ip("-n", self._space, "address", "add", f"{self.address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _ip("-n", self._space, "link", "set", device, "up")

    def _hold(self, hidden: list[str]) -> "subprocess.Popen[str]":
        """Start the process that holds the namespaces, and sets them up."""
        kept = {os.path.realpath(place) for place in (ROOT, sys.prefix, sys.base_prefix)}
        setup = _SETUP.format(name=self.name, hidden=shlex.join(hidden), kept=shlex.join(sorted(kept)))
        return subprocess.Popen(
            ["ip", "netns", "exec", self._space, "unshare", "--mount", "--uts", "--propagation", "private",
             "sh", "-c", setup],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )  # fmt: skip

    def start(self, command: list[str], environment: Mapping[str, str] | None = None, *, log: Path) -> None:
        """Start a program, which ends with the machine; its output goes to a file of this computer."""
        with log.open("ab") as out:
            inside, nothing = self.inside(command, environment), subprocess.DEVNULL
            self._started.append(
                subprocess.Popen(inside, stdin=nothing, stdout=out, stderr=out, start_new_session=True)
            )

    def open(
        self, command: list[str], environment: Mapping[str, str] | None = None, *, log: Path
    ) -> "subprocess.Popen[str]":
        """Start a program whose standard output the caller reads; its errors go to a file of this computer."""
        with log.open("a") as errors:
            inside, nothing = self._inside(command, environment), subprocess.DEVNULL
            return subprocess.Popen(inside, stdin=nothing, stdout=subprocess.PIPE, stderr=errors, text=True)

    def processes(self) -> dict[int, str]:
        """Return the title of every program on the machine, by process id."""
        titles = {}
        for pid in self._pids():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                titles[pid] = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip()
        return titles

    def run(
        self,
        command: list[str],
        environment: Mapping[str, str] | None = None,
        *,
        data: str | None = None,
        timeout_s: float = 600,
    ) -> "subprocess.CompletedProcess[str]":
        """Run a program to its end.

        Args:
            command: the program and its arguments.
            environment: variables beyond ``PATH`` and ``HOME``.
            data: its standard input.
            timeout_s: seconds until it is killed.
        """
        return subprocess.run(
            self.inside(command, environment),
            input=data,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def write(self, path: str, text: str) -> None:
        """Write a file on the machine; its folder is created."""
        script = f"mkdir -p $(dirname {shlex.quote(path)}) && cat > {shlex.quote(path)}"
        done = self.run(["sh", "-c", script], data=text)
        assert done.returncode == 0, done.stderr

    def copy_in(self, folder: Path, to: str) -> None:
        """Copy a folder of this computer to the machine."""
        packed = subprocess.run(["tar", "-C", str(folder), "-c", "."], check=True, capture_output=True).stdout
        self._unpack(packed, to)

    def copy_from(self, other: "Machine", folder: str, to: str) -> None:
        """Copy a folder of another machine to this one."""
        packed = subprocess.run(other.inside(["tar", "-C", folder, "-c", "."], None), check=True, capture_output=True)
        self._unpack(packed.stdout, to)

    def _unpack(self, packed: bytes, to: str) -> None:
        command = self.inside(["sh", "-c", f"mkdir -p {shlex.quote(to)} && tar -C {shlex.quote(to)} -x"], None)
        subprocess.run(command, input=packed, check=True, capture_output=True)

    def inside(self, command: list[str], environment: Mapping[str, str] | None = None) -> list[str]:
        """Return the command that runs a program on the machine; root may run it anywhere on this computer."""
        variables = {"PATH": os.environ["PATH"], "HOME": "/tmp/home", **(environment or {})}
        pairs = [f"{name}={value}" for name, value in variables.items()]
        enter = ["nsenter", "-t", str(self._sleeper()), "--net", "--mount", "--uts", "--wd=/tmp", "--"]
        return [*enter, "env", "-i", *pairs, *command]

    def cut_off(self, *, connected: bool = False) -> None:
        """Take the machine off the network, or connect it again."""
        _ip("-n", self._network.switch, "link", "set", self._port, "up" if connected else "down")

    def kill(self) -> int:
        """Kill every program on the machine at once, as a power failure does; returns their number.

        Its files stay until ``remove``.
        """
        killed = 0
        while pids := [pid for pid in self._pids() if pid != self._sleeper()]:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            killed += len(pids)
            time.sleep(0.05)
        for program in self._started:
            program.wait(10)
        return killed

    def remove(self) -> None:
        """Kill the programs of the machine, and delete it with its files."""
        with self._made:
            self.kill()

    def _end_holder(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._holder.pid, signal.SIGKILL)
        self._holder.communicate(timeout=10)

    def _pids(self) -> list[int]:
        found = subprocess.run(["ip", "netns", "pids", self._space], check=True, capture_output=True, text=True).stdout
        zombies = {pid for pid in map(int, found.split()) if _is_zombie(pid)}
        return [pid for pid in map(int, found.split()) if pid not in zombies]

    def _sleeper(self) -> int:
        return self._holder.pid  # ip, unshare and sh replace themselves


class Network:
    """A private network of machines.

    Attributes:
        name: prefix of its namespaces.
        switch: the namespace with the bridge that connects the machines.
        machines: by name.
        hidden: files and folders of this computer that machines added from now on see empty.
    """

    def __init__(self) -> None:
        self.hidden: list[Path] = []
        self.name = f"lsr{secrets.token_hex(3)}"
        self.switch = f"{self.name}-switch"
        self.machines: dict[str, Machine] = {}
        self._added = 0
        with contextlib.ExitStack() as made:
            _ip("netns", "add", self.switch)
            made.callback(_ip, "netns", "delete", self.switch)
            _ip("-n", self.switch, "link", "add", "switch", "type", "bridge")
            _ip("-n", self.switch, "link", "set", "switch", "up")
            self._made = made.pop_all()

    def add(self, name: str) -> Machine:
        """Add a machine."""
        self._added += 1
        self.machines[name] = Machine(self, name, self._added)
        return self.machines[name]

    def attach_host(self) -> None:
        """Give this computer an address on the network; only one network can have it at a time."""
        host = f"{self.name}-h"
        _ip(*f"link add {host} type veth peer name host netns {self.switch}".split())
        self._made.callback(_ip, "link", "delete", host)
        _ip("-n", self.switch, "link", "set", "host", "master", "switch", "up")
        _ip("address", "add", _HOST, "dev", host)
        _ip("link", "set", host, "up")

    def remove(self, name: str) -> None:
        """Remove a machine."""
        self.machines.pop(name).remove()

    def close(self) -> None:
        """Remove all machines, then the network; one that cannot be removed does not keep the others."""
        with self._made:
            for machine in self.machines.values():
                self._made.callback(machine.remove)


@contextlib.contextmanager
def network() -> Iterator[Network]:
    """Make a network, and remove it with its machines and all of their programs at the end."""
    made = Network()
    try:
        yield made
    finally:
        made.close()


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True
