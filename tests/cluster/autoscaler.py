"""Stand-in for an autoscaler: adds machines while Ray has demand, and takes one away with notice.

The corpus is encoded on a cluster that begins with the head alone, a node without cores. The first machine is taken
away while it encodes: its end is announced to Ray, and some seconds later all of its programs are killed.
"""

import json
import re
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quickstart.models import model_folder
from tests.cluster.endpoint_machine import BUCKET, EndpointMachine, result
from tests.cluster.namespaces import Machine, network
from tests.cluster.pipeline import command, deployment, upload_inputs
from tests.cluster.ray_machines import RayMachines, ray_machines

__all__ = ["run_autoscaler"]

_DOCUMENTS, _FILES = 9600, 12
_MACHINES = 2  # that the stand-in may have at once
_NOTICE_S = 5.0
_LOOK_S = 1.0
_START_S = 15.0  # until a node that was added has taken its share of the demand

# Prints the demand and the nodes that are alive, once per second: what an autoscaler of Ray reads.
_DEMAND = """
import json, sys, time
from ray._raylet import GcsClient
from ray.autoscaler.v2.sdk import get_cluster_resource_state
gcs = GcsClient(address=sys.argv[1])
while True:
    state = get_cluster_resource_state(gcs)
    asked = [(dict(each.request.resources_bundle), each.count) for each in state.pending_resource_requests]
    print(json.dumps(asked), flush=True)
    time.sleep(float(sys.argv[2]))
"""

_DRAIN = Path(__file__).parents[2] / "infra/image/drain.py"


@dataclass
class Elastic:
    """Result of the scenario.

    Attributes:
        made: digest, documents and quarantined rows.
        seconds: events, in seconds after the job was submitted.
        demand: what Ray asked for, each form once.
        blocks: encoded by each machine.
    """

    made: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    demand: list[Any] = field(default_factory=list)
    blocks: dict[str, int] = field(default_factory=dict)


class _Autoscaler(threading.Thread):
    """Adds a machine for demand, at most ``_MACHINES``, and takes the first away after its first finished cell."""

    def __init__(self, cluster: RayMachines, seen: Elastic, logs: Path) -> None:
        super().__init__(daemon=True)
        self._cluster, self._seen, self._logs = cluster, seen, logs
        self._began, self._ended = time.monotonic(), threading.Event()
        self._machines: list[str] = []
        self._added = 0

    def stop(self) -> None:
        self._ended.set()
        self.join()

    def run(self) -> None:
        cluster, log = self._cluster, self._logs / "demand.log"
        ask = [sys.executable, "-c", _DEMAND, cluster.address, str(_LOOK_S)]
        cluster.head.start(ask, cluster.environment, log=log)
        watcher = threading.Thread(target=self._watch_work)
        watcher.start()
        while not self._ended.wait(_LOOK_S):
            lines = [line for line in log.read_text().splitlines() if line.startswith("[") and line.endswith("]")]
            demand = json.loads(lines[-1]) if lines else []
            if not demand:
                continue
            self._event("demand")
            self._seen.demand += [each for each in demand if each not in self._seen.demand]
            if len(self._machines) < _MACHINES:
                self._add()
                self._ended.wait(_START_S)
        watcher.join()

    def _add(self) -> None:
        self._added += 1
        name = f"worker{self._added}"
        self._cluster.add_worker(name)
        self._machines.append(name)
        self._event(f"added {name}")

    def _watch_work(self) -> None:
        """Take the first machine away while two machines encode."""
        while not self._ended.wait(0.5):
            cells = self._cluster.endpoint.names(self._cluster.client, "tables/docs/_lsr_prod/done")
            if cells:
                self._event("first cell")
            if cells and len(self._machines) == _MACHINES:
                break
        else:
            return
        if self._ended.wait(_START_S):
            return
        first = self._cluster.network.machines["worker1"]
        environment = {**self._cluster.environment, "RAY_ADDRESS": self._cluster.address, "POD_IP": first.address}
        done = self._cluster.head.run([sys.executable, str(_DRAIN), str(_NOTICE_S)], environment)
        (self._logs / "drain.out").write_text(done.stdout + done.stderr)
        self._event("notice")
        if self._ended.wait(_NOTICE_S):
            return  # the corpus was encoded before the machine was taken away: the run shows nothing
        self._cluster.kill("worker1")
        self._machines.remove("worker1")
        self._event("killed worker1")

    def _event(self, name: str) -> None:
        self._seen.seconds.setdefault(name, round(time.monotonic() - self._began, 1))


def run_autoscaler(logs: Path) -> tuple[dict[str, Any], Elastic]:
    """Encode a corpus on one machine and on the elastic cluster; return what each made."""
    seen = Elastic()
    with network() as machines:
        endpoint = EndpointMachine(machines, logs)
        machine = machines.add("single")
        endpoint.create_bucket(machine)
        _make_bundle(endpoint, machine)
        single = _made(_run(endpoint, machine, "encode"))
    with ray_machines(logs, workers=0) as cluster:
        _make_bundle(cluster.endpoint, cluster.client)
        autoscaler = _Autoscaler(cluster, seen, logs)
        autoscaler.start()
        files = {"deployment.yaml": _deployment(cluster.endpoint.options)}
        run = [*command("encode"), "--encode.max_actors", str(_MACHINES)]
        try:
            done = cluster.submit(run, files, timeout_s=900)
        finally:
            autoscaler.stop()
        (logs / "encode.out").write_text(done.stdout + done.stderr)
        seen.made = _made(result(done))
        if found := re.search(r'"blocks_by_node": (\{[^}]*\})', done.stdout):
            seen.blocks = json.loads(found[1])
    return single, seen


def _make_bundle(endpoint: EndpointMachine, machine: Machine) -> None:
    upload_inputs(endpoint, machine, str(model_folder("splade-tiny")), documents=_DOCUMENTS, files=_FILES)
    _run(endpoint, machine, "export")


def _run(endpoint: EndpointMachine, machine: Machine, stage: str) -> dict[str, Any]:
    """Run a stage on one machine, with a local Ray of two cores."""
    machine.write("/tmp/home/deployment.yaml", _deployment(endpoint.options, num_cpus=2))
    environment = {**endpoint.environment, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    return result(machine.run(["env", "-C", "/tmp/home", *command(stage)], environment, timeout_s=900))


def _deployment(options: dict[str, str], **ray: Any) -> str:
    sections = json.loads(deployment(options, **ray))
    sections["export"]["model"] = f"s3://{BUCKET}/start/model"
    return json.dumps(sections)


def _made(figures: dict[str, Any]) -> dict[str, Any]:
    return {name: figures[name] for name in ("table_digest", "documents", "quarantined")}
