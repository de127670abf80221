"""The sections of docs/deploy.md for machines, run on bare hosts, and what has to be there afterwards."""

import json
import re
import time
from pathlib import Path
from typing import Any

from quickstart.models import model_folder
from tests.cluster.endpoint_machine import EndpointMachine
from tests.cluster.namespaces import Machine, network
from tests.infra.deploy.hosts import SEARCH, Hosts
from tests.infra.deploy.page import script
from tests.infra.image.corpus import DOCUMENTS, QUERY, write_corpus

__all__ = ["CLUSTER", "ONE", "run_cluster", "run_one"]

CLUSTER = "A Ray cluster of virtual machines"
ONE = "One big machine"
_PATIENCE_S = 1500
_CREDENTIALS = "AWS_ACCESS_KEY_ID=testing\nAWS_SECRET_ACCESS_KEY=testing\n"
_UPLOAD = """
boto.create_bucket(Bucket='search')
for path in Path('/tmp/home/search').rglob('*'):
    key = path.relative_to('/tmp/home/search').as_posix()
    if path.is_file() and key.startswith(('corpus/', 'judged/')):
        boto.put_object(Bucket='search', Key=key, Body=path.read_bytes())
"""


def run_cluster(packages: Path, opt: Path, folder: Path) -> dict[str, Any]:
    """Run the section for a cluster: a head, and two workers of which one joins later."""
    with network() as machines:
        endpoint = EndpointMachine(machines, folder)
        hosts = Hosts(machines, ["head", "worker1", "worker2"], packages, opt)
        _supply(hosts.computer, folder)
        endpoint.create_bucket(hosts.computer)
        endpoint.run(hosts.computer, _UPLOAD)
        return _run(hosts, CLUSTER, folder)


def run_one(packages: Path, opt: Path, folder: Path) -> dict[str, Any]:
    """Run the section for one machine."""
    with network() as machines:
        hosts = Hosts(machines, ["search"], packages, opt)
        _supply(hosts.computer, folder)
        return _run(hosts, ONE, folder)


def _supply(computer: Machine, folder: Path) -> None:
    """Put on the computer what the page says that a person needs."""
    write_corpus(_folder(folder, "inputs"))
    computer.copy_in(folder / "inputs", SEARCH)
    computer.copy_in(model_folder("splade-tiny"), f"{SEARCH}/checkpoint")
    computer.write(f"{SEARCH}/store.env", _CREDENTIALS)


def _run(hosts: Hosts, section: str, folder: Path) -> dict[str, Any]:
    """Run the commands, and verify the night and the search.

    Raises:
        AssertionError: a command failed, or its output is not what it should be.
    """
    log, began = folder / f"{section.split()[-1]}.log", time.monotonic()
    done = hosts.run(script(section), log, _PATIENCE_S)
    assert done.returncode == 0, f"{done.stdout[-6000:]}\nexit code {done.returncode}; all of it: {log}"
    night = _result(done.stdout)
    assert night["encode.rows_out"] == DOCUMENTS, night
    assert night["encode.quarantined"] == 0, night
    assert night["index.publication"] == 1, night
    answer = done.stdout[done.stdout.index(QUERY) :]
    first = re.search(r"^ +1\. +[0-9.]+ +(\S+)", answer, re.MULTILINE)
    assert first is not None, answer
    assert first[1] == "lock", answer
    return {"commands": len(re.findall(r"^\+ ", done.stdout, re.MULTILINE)), "seconds": round(time.monotonic() - began)}


def _result(output: str) -> dict[str, Any]:
    """Return the figures of the night."""
    lines = [json.loads(line[7:]) for line in output.splitlines() if line.startswith("RESULT ")]
    (night,) = [one for one in lines if "encode.rows_out" in one]
    return dict(night)


def _folder(parent: Path, name: str) -> Path:
    (parent / name).mkdir(exist_ok=True)
    return parent / name
