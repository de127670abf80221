"""A Ray cluster of machines that share only an S3 endpoint: a head without cores, workers, and a client that submits.

Token authentication is on. The client has the command line of Ray and the token, but is no node.
"""

import json
import re
import secrets
import shlex
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.endpoint_machine import BIN, EndpointMachine
from tests.cluster.namespaces import ROOT, Machine, Network, network

__all__ = ["RayMachines", "ray_machines"]

_PORT, _DASHBOARD = 6379, 8265
_TOKEN = "/tmp/home/token"
_MEMORY = 200_000_000
_STARTED_S = 180
_HEALTH = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 1000, "health_check_failure_threshold": 10}


_NODES = """
import ray, sys
ray.init(sys.argv[1], log_to_driver=False)
print("alive nodes:", sum(node["Alive"] for node in ray.nodes()))
"""


class RayMachines:
    """The cluster, its endpoint and its client.

    Attributes:
        network: its machines.
        endpoint: the only thing that they share.
        client: submits jobs.
        head: a node without cores.
        dashboard: URL for ``ray job submit``.
    """

    def __init__(self, machines: Network, endpoint: EndpointMachine, logs: Path, *, installed: bool = True) -> None:
        self.network, self.endpoint, self._logs = machines, endpoint, logs
        self._token = secrets.token_hex(32)
        self.client = self._machine("client")
        self._installed = installed
        if not installed:
            machines.hidden = _program()
        self.head = self._machine("head")
        self.dashboard = f"http://{self.head.address}:{_DASHBOARD}"
        self._start_node(
            self.head,
            ["--head", f"--port={_PORT}", "--dashboard-host=0.0.0.0", f"--dashboard-port={_DASHBOARD}", "--num-cpus=0",
             f"--system-config={json.dumps(_HEALTH)}"],
        )  # fmt: skip
        self.endpoint.create_bucket(self.client)

    @property
    def environment(self) -> dict[str, str]:
        """Variables of every program on a machine."""
        environment = {key: value for key, value in self.endpoint.environment.items() if key != "PYTHONPATH"}
        if self._installed:
            environment["PYTHONPATH"] = self.endpoint.environment["PYTHONPATH"]
        return {**environment, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": _TOKEN}

    @property
    def address(self) -> str:
        """Address of the cluster's control store."""
        return f"{self.head.address}:{_PORT}"

    def add_worker(self, name: str, cores: int = 1) -> Machine:
        """Add a machine, and its node to the cluster."""
        machine = self._machine(name)
        self._start_node(machine, [f"--address={self.head.address}:{_PORT}", f"--num-cpus={cores}"])
        return machine

    def kill(self, name: str) -> int:
        """Kill a worker as a power failure does; returns the number of its programs."""
        return self.network.machines[name].kill()

    def submit(
        self,
        command: list[str],
        files: dict[str, str],
        *,
        checkout: bool = False,
        token: bool = True,
        timeout_s: float = 900,
    ) -> "subprocess.CompletedProcess[str]":
        """Submit a job from the client and wait for its end.

        Args:
            command: the entry point.
            files: content of the working directory, by name.
            checkout: the working directory has the checkout too, as a fresh clone.
            token: give the token to Ray's command line.
            timeout_s: seconds until the client gives up.
        """
        folder = f"/tmp/home/job{secrets.token_hex(3)}"
        if checkout:
            self._copy_checkout(folder)
        for name, text in files.items():
            self.client.write(f"{folder}/{name}", text)
        submit = [
            str(BIN / "ray"), "job", "submit", "--address", self.dashboard, "--working-dir", folder, "--", *command,
        ]  # fmt: skip
        environment = self.environment
        if not token:
            environment = {key: value for key, value in environment.items() if not key.startswith("RAY_AUTH")}
        return self.client.run(submit, environment, timeout_s=timeout_s)

    def _copy_checkout(self, folder: str) -> None:
        """Copy the files that git tracks."""
        root = shlex.quote(str(ROOT))  # another user may own it
        list_files = f"cd {root} && git -c safe.directory={root} ls-files -z"
        script = f"mkdir -p {folder} && {list_files} | xargs -0 tar -c | tar -x -C {folder}"
        done = self.client.run(["sh", "-c", script])
        assert done.returncode == 0, done.stderr

    def nodes(self) -> int:
        """Return the number of nodes that Ray says are alive."""
        address = f"{self.head.address}:{_PORT}"
        done = self.head.run([sys.executable, "-c", _NODES, address], self.environment)
        assert done.returncode == 0, done.stderr
        found = re.search(r"alive nodes: (\d+)", done.stdout)  # Ray prints its warnings there too
        assert found is not None, done.stdout
        return int(found[1])

    def wait_for_nodes(self, count: int) -> None:
        """Wait until a number of nodes is alive."""
        end = time.monotonic() + _STARTED_S
        while time.monotonic() < end:
            if self.nodes() == count:
                return
            time.sleep(0.5)
        raise TimeoutError("\n".join(path.read_text()[-2000:] for path in self._logs.glob("*.log")))

    def _machine(self, name: str) -> Machine:
        machine = self.network.add(name)
        machine.write(_TOKEN, self._token)
        return machine

    def _start_node(self, machine: Machine, options: list[str]) -> None:
        command = [
            str(BIN / "ray"), "start", "--block", f"--node-ip-address={machine.address}", "--disable-usage-stats",
            f"--object-store-memory={_MEMORY}", *options,
        ]  # fmt: skip
        machine.start(command, self.environment, log=self._logs / f"{machine.name}.log")


def _program() -> list[Path]:
    """Return the files that make ``import lsr_prod`` work: the checkout's package and its installation."""
    packages = Path(sysconfig.get_paths()["purelib"])
    return [ROOT / "lsr_prod", ROOT / "lsr_prod_contrib", *packages.glob("*lsr_prod*")]


@contextmanager
def ray_machines(
    logs: Path,
    workers: int = 2,
    endpoint_options: list[str] | None = None,
    *,
    server: str = "tests.s3_endpoint",
    installed: bool = True,
) -> Iterator[RayMachines]:
    """Start an endpoint, a head and workers, and remove them at the end.

    Args:
        logs: folder of this computer for the output of the programs.
        workers: nodes of one core each.
        endpoint_options: further options of the endpoint.
        server: module of the endpoint, see ``EndpointMachine``.
        installed: False: the nodes have what lsr_prod needs, but not lsr_prod itself.
    """
    with network() as machines:
        endpoint = EndpointMachine(machines, logs, endpoint_options, server)
        cluster = RayMachines(machines, endpoint, logs, installed=installed)
        for number in range(workers):
            cluster.add_worker(f"worker{number + 1}")
        cluster.wait_for_nodes(workers + 1)
        yield cluster
