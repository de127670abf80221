"""A person who looks at a table while the cluster encodes it: what commands print, and that they disturb nothing."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.cluster.endpoint_machine import result
from tests.cluster.pipeline import command
from tests.cluster.ray_machines import RayMachines

__all__ = ["look_on"]


def look_on(cluster: RayMachines, settings: str) -> dict[str, Any]:
    """Submit ``status``, ``quarantine`` and ``encode --dry-run`` as jobs of the cluster.

    Args:
        cluster: it encodes a corpus.
        settings: the deployment.

    Returns:
        What each of them says; ``state`` of the plan is "running" if the corpus was encoded before and after.
    """
    names = ("run", "waves", "waves_done", "parts", "actors", "put_requests")
    runs = [[*command("encode"), "--dry-run"], [*command("table quarantine"), "--json"]]
    with ThreadPoolExecutor() as threads:  # the corpus is encoded within a minute
        before = threads.submit(_plan, cluster, settings)
        dry_run, rows = threads.map(lambda run: _submit(cluster, settings, run), runs)
    return {
        "before": before.result(),
        "dry run": {name: result(dry_run)[name] for name in names},
        "quarantine": sum('"reason"' in row for row in rows.stdout.splitlines()),
        "after": _plan(cluster, settings),
    }


def _plan(cluster: RayMachines, settings: str) -> dict[str, Any]:
    lines = _submit(cluster, settings, [*command("table status"), "--json"]).stdout.splitlines()
    (status,) = [json.loads(line) for line in lines if line.startswith('{"')]
    (plan,) = status["plans"]
    return {name: plan[name] for name in ("state", "host", "attempt", "waves_done", "waves", "cells_done", "cells")}


def _submit(cluster: RayMachines, settings: str, run: list[str]) -> Any:
    done = cluster.submit(run, {"deployment.yaml": settings}, timeout_s=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done
