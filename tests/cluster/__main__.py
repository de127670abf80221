"""The cluster campaign: the whole way on machines that share only an object store equals a run on one machine.

    python -m tests.cluster [--scenario NAME]... [--server tests.objectstore.ceph] [--logs FOLDER]

Prints one row per scenario and stage, and one line ``RESULT {json}`` with ``equal``: 1 if every scenario made the
digests of the single machine. Exit codes: 0 equal, 1 not, 3 this computer cannot make machines.
"""

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from tests.cluster.autoscaler import run_autoscaler
from tests.cluster.campaign import SCENARIOS, Outcome, run_scenario, run_single_machine
from tests.cluster.namespaces import missing


def main() -> int:
    """Run the scenarios and compare them with the single machine."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster")
    parser.add_argument("--scenario", action="append", choices=[*SCENARIOS, "autoscaler"], help="default: all")
    parser.add_argument("--server", default="tests.s3_endpoint", help="module of the object store of the scenarios")
    parser.add_argument("--logs", type=Path, default=None, help="folder for the output of all programs")
    given = parser.parse_args()
    if reason := missing():
        sys.stdout.write(f"skipped: {reason}\n")
        return 3
    logs = given.logs or Path(tempfile.mkdtemp(prefix="lsr-cluster-"))
    names = given.scenario or [*SCENARIOS, "autoscaler"]
    equal, rows = 1, {}
    if "autoscaler" in names:
        made, elastic = run_autoscaler(_folder(logs, "autoscaler"))
        equal &= made == elastic.made and "killed worker1" in elastic.seconds
        sys.stdout.write(f"autoscaler: {made} {json.dumps(asdict(elastic))}\n")
        rows["autoscaler"] = elastic.seconds
    disturbed = [name for name in names if name != "autoscaler"]
    single = run_single_machine(_folder(logs, "single")) if disturbed else Outcome()
    sys.stdout.write(f"single machine: {json.dumps(asdict(single))}\n")
    for name in disturbed:
        outcome = run_scenario(name, _folder(logs, name), given.server)
        different = {
            key: [value, outcome.made[key]] for key, value in single.made.items() if outcome.made[key] != value
        }
        equal &= not different
        sys.stdout.write(f"{name}: {different or 'equal'} {json.dumps(asdict(outcome))}\n")
        sys.stdout.flush()
        rows[name] = outcome.seconds
    sys.stdout.write(f"RESULT {json.dumps({'equal': equal, 'scenarios': len(rows), 'seconds': rows})}\n")
    return 0 if equal else 1


def _folder(logs: Path, name: str) -> Path:
    folder = logs / name.replace(" ", "-")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


if __name__ == "__main__":
    raise SystemExit(main())
