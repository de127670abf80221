"""Clusters that nights run on: processes of this computer, or machines that share only the object store."""

import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from tests.cluster.ray_machines import RayMachines, ray_machines
from tests.faults.cluster import LocalCluster, kill, local_cluster
from tests.objectstore.endpoint import local_s3

__all__ = ["NightCluster", "on_machines", "on_processes"]

ROOT = Path(__file__).parents[2]
_WORKERS = 2  # nodes of one core
_ENCODER = re.compile(r"^ray::\S*Encoder")
_CONFIG = "/tmp/home/night.yaml"


class NightCluster(Protocol):
    """A Ray cluster with an object store.

    Attributes:
        options: options of the object store.
        ray: section ``ray`` of a job on the cluster.
        own_ray: section ``ray`` of a job of this process, which is not killed.
    """

    options: dict[str, str]
    ray: dict[str, Any]
    own_ray: dict[str, Any]

    def start(self, config: Path, calls: int, log: Path) -> "subprocess.Popen[str]":
        """Start the job of a night; it kills itself after ``calls`` calls, 0: never."""

    def encoders(self) -> list[int]:
        """Return the process ids of encoders."""

    def kill_node(self, rng: random.Random) -> bool:
        """Kill a node at once; return whether it ran."""

    def replace_dead(self) -> None:
        """Add a node for each that was killed."""


class Processes:
    """Nodes that are processes of this computer, on loopback."""

    def __init__(self, cluster: LocalCluster, options: dict[str, str]) -> None:
        self._cluster, self.options = cluster, options
        self.ray: dict[str, Any] = {"address": cluster.address}
        self.own_ray = self.ray
        self.encoders, self.replace_dead = cluster.actors, cluster.replace_dead

    def start(self, config: Path, calls: int, log: Path) -> "subprocess.Popen[str]":
        """Start the job of a night."""
        command = [sys.executable, "-m", "tests.nights.night", str(config), str(calls)]
        with log.open("a") as errors:
            return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True)

    def kill_node(self, rng: random.Random) -> bool:
        """Kill the raylet of a node."""
        return kill(rng.choice(self._cluster.raylets()))


class Machines:
    """Nodes with their own network, mounts and host name; jobs run on the head, which has no cores."""

    def __init__(self, cluster: RayMachines) -> None:
        self._cluster, self.options = cluster, cluster.endpoint.options
        self.ray: dict[str, Any] = {"address": cluster.address}
        self.own_ray: dict[str, Any] = {"num_cpus": 1}
        self._added = self._workers = len(self._names())

    def start(self, config: Path, calls: int, log: Path) -> "subprocess.Popen[str]":
        """Start the job of a night on the head."""
        head = self._cluster.head
        head.write(_CONFIG, config.read_text())
        command = [sys.executable, "-m", "tests.nights.night", _CONFIG, str(calls)]
        return head.open(command, self._cluster.environment, log=log)

    def encoders(self) -> list[int]:
        """Return the process ids of encoders on all workers."""
        machines = [self._cluster.network.machines[name] for name in self._names()]
        return [pid for one in machines for pid, title in one.processes().items() if _ENCODER.match(title)]

    def kill_node(self, rng: random.Random) -> bool:
        """Kill all programs of a worker as a power failure does, and remove the machine."""
        name = rng.choice(self._names())
        killed = self._cluster.kill(name)
        self._cluster.network.remove(name)
        return killed > 0

    def replace_dead(self) -> None:
        """Add machines until there are as many workers as in the beginning."""
        while len(self._names()) < self._workers:
            self._added += 1
            self._cluster.add_worker(f"worker{self._added}")

    def _names(self) -> list[str]:
        return [name for name in self._cluster.network.machines if name.startswith("worker")]


@contextmanager
def on_processes() -> Iterator[NightCluster]:
    """Start a cluster of processes and an object store."""
    with local_s3() as options, local_cluster(_WORKERS) as cluster:
        yield Processes(cluster, options)


@contextmanager
def on_machines(logs: Path) -> Iterator[NightCluster]:
    """Start a cluster of machines and an object store that this computer reaches too.

    Args:
        logs: folder of this computer for the output of the programs.
    """
    os.environ["AWS_ACCESS_KEY_ID"] = os.environ["AWS_SECRET_ACCESS_KEY"] = "testing"
    with ray_machines(logs, _WORKERS) as cluster:
        cluster.network.attach_host()
        yield Machines(cluster)
