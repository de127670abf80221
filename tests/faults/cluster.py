"""A local Ray cluster on loopback: a head node without cores, and worker nodes that can be killed and replaced."""

import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lsr_prod.cluster.address import prepare_token
from lsr_prod.cluster.session import own_folder

__all__ = ["LocalCluster", "kill", "local_cluster"]

_ACTOR = re.compile(r"^ray::\S*Encoder")
_FAST_HEALTH = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 1000, "health_check_failure_threshold": 8}


class LocalCluster:
    """Worker nodes of one core each.

    Attributes:
        address: value of ``ray.address`` for a job.
    """

    def __init__(self, cluster: Any, workers: int) -> None:
        self._cluster = cluster
        self.address: str = cluster.address
        self._nodes = [self._add() for _ in range(workers)]

    def actors(self) -> list[int]:
        """Return the process ids of encoder actors."""
        return [pid for pid, title in self._processes() if _ACTOR.match(title)]

    def workers(self) -> list[int]:
        """Return the process ids of workers that run tasks of Ray Data."""
        return [
            pid
            for pid, title in self._processes()
            if title.startswith("ray::") and not title.startswith("ray::IDLE") and not _ACTOR.match(title)
        ]

    def raylets(self) -> list[int]:
        """Return the process ids of running raylets of worker nodes."""
        return [_raylet(node) for node in self._nodes if _alive(node)]

    def announce_preemption(self, number: int, seconds: float) -> None:
        """Announce the preemption of a node as a cloud provider does; the node keeps running."""
        from ray._raylet import GcsClient
        from ray.core.generated.autoscaler_pb2 import DRAIN_NODE_REASON_PREEMPTION

        deadline = int((time.time() + seconds) * 1000)
        accepted, refusal = GcsClient(address=self.address).drain_node(
            self._nodes[number].node_id, DRAIN_NODE_REASON_PREEMPTION, "preempted", deadline
        )
        assert accepted, refusal

    def replace_dead(self) -> None:
        """Replace nodes whose raylet has ended; on a busy machine one may end without being killed."""
        for node in [node for node in self._nodes if not _alive(node)]:
            self._nodes.remove(node)
            self._cluster.remove_node(node, allow_graceful=False)
            self._nodes.append(self._add())

    def _add(self) -> Any:
        return self._cluster.add_node(num_cpus=1, object_store_memory=150_000_000)

    def _processes(self) -> list[tuple[int, str]]:
        """Return (pid, title) of the children of the raylets."""
        parents = set(self.raylets())
        found = []
        for folder in Path("/proc").iterdir():
            if not folder.name.isdigit():
                continue
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                if parent in parents:
                    found.append((int(folder.name), (folder / "cmdline").read_text().replace("\0", " ").strip()))
            except (FileNotFoundError, ProcessLookupError):
                continue  # it ended in the meantime
        return found


@contextmanager
def local_cluster(workers: int) -> Iterator[LocalCluster]:
    """Start the cluster, and end all of its processes with the context."""
    os.environ.update({"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_MODE": "token"})
    os.environ.setdefault("RAY_TMPDIR", str(own_folder()))
    prepare_token()
    from ray._raylet import Config
    from ray.cluster_utils import Cluster
    from ray.experimental import internal_kv

    Config.initialize("")  # Ray reads the mode when it is imported

    # A head makes its control store that of the process; a call to it after its end would end the process.
    connected = internal_kv.internal_kv_get_gcs_client()
    head = {"num_cpus": 0, "object_store_memory": 150_000_000, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args={**head, "_system_config": _FAST_HEALTH})
    try:
        yield LocalCluster(cluster, workers)
    finally:
        for node in [*cluster.worker_nodes, cluster.head_node]:
            node.kill_all_processes(check_alive=False, allow_graceful=False)
        if connected is None:
            internal_kv._internal_kv_reset()
        else:
            internal_kv._initialize_internal_kv(connected)


def kill(pid: int) -> bool:
    """Send SIGKILL; return False if the process has ended."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _alive(node: Any) -> bool:
    return node.all_processes["raylet"][0].process.poll() is None


def _raylet(node: Any) -> int:
    return int(node.all_processes["raylet"][0].process.pid)
