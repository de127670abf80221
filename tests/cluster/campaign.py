"""Run the whole way on one machine and on a cluster, undisturbed and disturbed, and compare the digests."""

import json
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quickstart.models import model_folder
from tests.cluster.endpoint_machine import EndpointMachine, result
from tests.cluster.namespaces import network
from tests.cluster.onlooker import look_on
from tests.cluster.pipeline import STAGES, command, deployment, digests, query, upload_inputs
from tests.cluster.ray_machines import RayMachines, ray_machines

__all__ = ["SCENARIOS", "Outcome", "run_scenario", "run_single_machine"]

_DOCUMENTS, _FILES = 2400, 6
_BUSY = ["--refuse", "0.05", "--delay", "0.05", "--seconds", "2"]
_NODES = 3
_PARTITION_S = 20
# An object whose existence says that the stage is at work: the fault strikes then.
_AT_WORK = {"train": "work/runs", "encode": "tables/docs/_lsr_prod/done", "index": "indexes/docs/files"}


@dataclass
class Outcome:
    """Result of a run of all stages.

    Attributes:
        made: digests, counts and measures.
        seconds: per stage.
        notes: what a disturbance did, per stage.
    """

    made: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)


_BLOCKS = re.compile(r'"blocks_by_node": (\{[^}]*\})')

Disturb = Callable[[RayMachines, str, Outcome], None]
"""Called in a thread of its own while a stage runs."""


def run_single_machine(logs: Path) -> Outcome:
    """Run all stages on one machine with a local Ray of two cores and moto, and return what they made."""
    outcome, results = Outcome(), {}
    with network() as machines:
        endpoint = EndpointMachine(machines, logs)
        machine = machines.add("single")
        endpoint.create_bucket(machine)
        upload_inputs(endpoint, machine, str(model_folder("splade-tiny")), documents=_DOCUMENTS, files=_FILES)
        machine.write("/tmp/home/deployment.yaml", deployment(endpoint.options, num_cpus=2))
        environment = {**endpoint.environment, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
        for stage in STAGES:
            if stage == "serve":
                continue
            with _timed(outcome, stage):
                run = ["env", "-C", "/tmp/home", *command(stage)]
                results[stage] = result(machine.run(run, environment, timeout_s=1800))
    outcome.made = digests(results)
    return outcome


def run_scenario(name: str, logs: Path, server: str = "tests.s3_endpoint") -> Outcome:
    """Run all stages on a cluster in one of the ``SCENARIOS``; ``server`` is the module of its endpoint."""
    disturb, options = SCENARIOS[name]
    outcome, results = Outcome(), {}
    with ray_machines(logs, workers=2, endpoint_options=options, server=server) as cluster:
        model = str(model_folder("splade-tiny"))
        upload_inputs(cluster.endpoint, cluster.client, model, documents=_DOCUMENTS, files=_FILES)
        settings = deployment(cluster.endpoint.options)
        for stage in STAGES:
            cluster.wait_for_nodes(_NODES)  # a killed worker has left, and its replacement has joined
            helper = threading.Thread(target=disturb, args=(cluster, stage, outcome)) if disturb else None
            if helper:
                helper.start()
            with _timed(outcome, stage):
                done = cluster.submit(command(stage), {"deployment.yaml": settings}, timeout_s=1800)
            if helper:
                helper.join()
            (logs / f"{stage}.out").write_text(done.stdout + done.stderr)
            results[stage] = result(done)
            if blocks := _BLOCKS.search(done.stdout):
                outcome.notes[stage] = f"{outcome.notes.get(stage, '')} blocks {blocks[1]}".strip()
            if stage == "serve":
                outcome.notes["serve"] = outcome.notes.get("serve", "") + f" answered {query(cluster)} hits"
    outcome.made = digests(results)
    return outcome


def _kill_and_add(cluster: RayMachines, stage: str, outcome: Outcome) -> None:
    """Kill a worker while the stage is at work, and add another machine at once."""
    if not _wait_until_at_work(cluster, stage):
        outcome.notes[stage] = "ended before the fault"
        return
    victim = next(name for name in cluster.network.machines if name.startswith("worker"))
    killed = cluster.kill(victim)
    cluster.network.remove(victim)
    newest = cluster.add_worker(f"worker-{stage}")
    outcome.notes[stage] = f"killed {victim} with {killed} programs, added {newest.name}"


def _look_on(cluster: RayMachines, stage: str, outcome: Outcome) -> None:
    """Look at the table while it is encoded."""
    if stage == "encode" and _wait_until_at_work(cluster, stage):
        outcome.notes["seen while encoding"] = json.dumps(look_on(cluster, deployment(cluster.endpoint.options)))


def _cut_off(cluster: RayMachines, stage: str, outcome: Outcome) -> None:
    """Take a worker off the network for 20 s while the corpus is encoded."""
    if stage != "encode" or not _wait_until_at_work(cluster, stage):
        return
    machine = next(machine for name, machine in cluster.network.machines.items() if name.startswith("worker"))
    machine.cut_off()
    time.sleep(_PARTITION_S)
    machine.cut_off(connected=True)
    # Ray has given the node up: its programs end, and a new machine takes its place.
    cluster.network.remove(machine.name)
    cluster.add_worker("worker-after")
    outcome.notes[stage] = f"{machine.name} was off the network for {_PARTITION_S} s"


def _wait_until_at_work(cluster: RayMachines, stage: str) -> bool:
    folder = _AT_WORK.get(stage)
    if folder is None:
        time.sleep(3)
        return True
    end = time.monotonic() + 600
    before = len(cluster.endpoint.names(cluster.client, folder))
    while time.monotonic() < end:
        if len(cluster.endpoint.names(cluster.client, folder)) > before:
            return True
        time.sleep(0.2)
    return False


@contextmanager
def _timed(outcome: Outcome, stage: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    outcome.seconds[stage] = round(time.monotonic() - began, 1)
    sys.stderr.write(f"{json.dumps({'stage': stage, 'seconds': outcome.seconds[stage]})}\n")


SCENARIOS: dict[str, tuple[Disturb | None, list[str]]] = {
    "undisturbed": (_look_on, []),
    "node killed in each stage": (_kill_and_add, []),
    "node off the network for 20 s": (_cut_off, []),
    "busy endpoint": (None, _BUSY),
}
"""Name -> (disturbance of each stage, further options of the endpoint)."""
