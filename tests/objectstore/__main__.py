"""Run the tests of object stores against a server that people operate: Ceph's RADOS gateway of Debian.

    make store-test
    python -m tests.objectstore [--parts suite races restarts faults cluster] [--rounds 1000] [--logs FOLDER]

- ``suite``: the tests of the stores, and those of other packages that use an object store;
- ``races``: writers that create the same objects, publish, and list what others write;
- ``restarts``: writers that create the same objects while the gateway is killed again and again;
- ``faults``: the worlds of ``make faults`` whose tables are in an object store;
- ``cluster``: one scenario of ``make cluster``, compared with a run on one machine.

Debian's packages are installed if they are absent (needs root). Ends with one line ``RESULT {json}``. If they cannot be
installed here, ``server`` is null, ``skipped`` says why, and the exit code is 0. It is 1 if anything failed.
"""

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lsr_prod.storage import Store
from tests.cluster.namespaces import missing as no_machines
from tests.objectstore.ceph import Ceph, ceph_gateway, ceph_version
from tests.objectstore.endpoint import GIVEN, ROOT, create_bucket, endpoint_options
from tests.objectstore.packages import install
from tests.objectstore.races import race_restarts, run_races

_SUITE = (
    "tests/storage",
    "tests/objectstore",
    "tests/contrib/doctor",
    "tests/encoding/tables",
    "tests/operations/maintenance/test_garbage.py",
    "tests/indexing/test_object_store.py",
    "tests/training/loop/test_checkpoint_store.py",
    "tests/e2e/test_object_store.py",
)


def main() -> int:
    """Start the server and run the selected parts against it."""
    given = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the server ends with this process
    began = time.monotonic()
    if reason := install():
        return _end({"server": None, "skipped": reason, "failed": 0})
    name, logs = ceph_version(), given.logs or Path(tempfile.mkdtemp(prefix="lsr-store-"))
    logs.mkdir(parents=True, exist_ok=True)
    os.environ["AWS_ACCESS_KEY_ID"] = os.environ["AWS_SECRET_ACCESS_KEY"] = "testing"
    result: dict[str, Any] = {"server": name, "failed": 0}
    _say(f"{name}; the output of all programs is in {logs}")
    with ceph_gateway(logs / "ceph") as server:
        create_bucket(server.endpoint, "lsr")
        for part in given.parts:
            started = time.monotonic()
            bucket = Store("s3://lsr", endpoint_options(server.endpoint))
            bucket.delete_all(bucket.names())
            found = _PARTS[part](given, server, logs)
            found["seconds"] = round(time.monotonic() - started, 1)
            _say(f"{part}: {json.dumps(found)}")
            result["failed"] += found["failed"]
            result[part] = found
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    result["wall_s"] = round(time.monotonic() - began, 1)
    result["cpu_s"] = round(sum(one.ru_utime + one.ru_stime for one in used), 1)
    return _end(result)


def _suite(_: argparse.Namespace, server: Ceph, logs: Path) -> dict[str, Any]:
    report = logs / "suite.xml"
    command = ["pytest", "-q", "-m", "not slow", f"--junitxml={report}", *_SUITE]
    code = _run(["-m", *command], server.endpoint, logs / "suite.log")
    if not report.exists():
        return {"failed": 1, "ended": f"exit code {code} without a report"}
    totals = next(ET.parse(report).getroot().iter("testsuite")).attrib
    failed = int(totals["failures"]) + int(totals["errors"])
    return {"failed": max(failed, int(code != 0)), "tests": int(totals["tests"]), "skipped": int(totals["skipped"])}


def _races(given: argparse.Namespace, server: Ceph, _: Path) -> dict[str, Any]:
    rounds, found = run_races(Store("s3://lsr/races", endpoint_options(server.endpoint)), given.rounds)
    for sentence in found[:20]:
        _say(f"FOUND {sentence}")
    return {"failed": len(found), **rounds}


def _restarts(given: argparse.Namespace, server: Ceph, _: Path) -> dict[str, Any]:
    bucket = Store("s3://lsr/restarts", endpoint_options(server.endpoint))
    restarts, failures, found = race_restarts(bucket, given.rounds, server.restart_gateway)
    for sentence in found[:20]:
        _say(f"FOUND {sentence}")
    return {"failed": len(found), "objects": given.rounds, "restarts": restarts, "failed_creations": failures}


def _faults(_: argparse.Namespace, server: Ceph, logs: Path) -> dict[str, Any]:
    command = ["-m", "tests.faults", "--parts", "committers", "--places", "s3"]
    code = _run(command, server.endpoint, logs / "faults.log")
    found = _result(logs / "faults.log")
    counts = {
        name: found.get(name) for name in ("seed", "faults", "worlds", "lost", "doubled", "torn_visible", "wrong")
    }
    return {"failed": int(code != 0), **counts}


def _cluster(_: argparse.Namespace, server: Ceph, logs: Path) -> dict[str, Any]:
    if reason := no_machines():
        return {"failed": 0, "skipped": reason}
    scenario = ["--scenario", "undisturbed", "--server", "tests.objectstore.ceph", "--logs", str(logs / "cluster")]
    code = _run(["-m", "tests.cluster", *scenario], server.endpoint, logs / "cluster.log")
    return {"failed": int(code != 0), "equal": _result(logs / "cluster.log").get("equal")}


_PARTS: dict[str, Callable[[argparse.Namespace, Ceph, Path], dict[str, Any]]] = {
    "suite": _suite,
    "races": _races,
    "restarts": _restarts,
    "faults": _faults,
    "cluster": _cluster,
}


def _run(arguments: list[str], endpoint: str, log: Path) -> int:
    """Run Python with the server as object store; its output goes to a file."""
    with log.open("wb") as out:
        command = [sys.executable, *arguments]
        return subprocess.run(
            command, cwd=ROOT, env={**os.environ, GIVEN: endpoint}, stdout=out, stderr=out, check=False
        ).returncode


def _result(log: Path) -> dict[str, Any]:
    """Return the figures of a campaign; empty if it ended without any."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.startswith("RESULT ")]
    return dict(json.loads(lines[-1].removeprefix("RESULT "))) if lines else {}


def _end(result: dict[str, Any]) -> int:
    _say(f"RESULT {json.dumps(result)}")
    return int(result["failed"] > 0)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.objectstore")
    parser.add_argument("--parts", nargs="+", choices=_PARTS, default=list(_PARTS))
    parser.add_argument("--rounds", type=int, default=1000, help="objects that are raced for")
    parser.add_argument(
        "--logs", type=Path, help="a new folder for the output of all programs; default: a temporary one"
    )
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
