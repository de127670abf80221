"""A person who looks at a table while the cluster encodes it: what commands print, and that they disturb nothing."""

import json
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
    seen: dict[str, Any] = {}
    seen["before"] = _plan(cluster, settings)
    dry_run = result(_submit(cluster, settings, [*command("encode"), "--dry-run"]))
    names = ("run", "waves", "waves_done", "parts", "actors", "put_requests")
    seen["dry run"] = {name: dry_run[name] for name in names}
    rows = _submit(cluster, settings, [*command("quarantine"), "--json"]).stdout.splitlines()
    seen["quarantine"] = sum('"reason"' in row for row in rows)
    seen["after"] = _plan(cluster, settings)
    return seen


def _plan(cluster: RayMachines, settings: str) -> dict[str, Any]:
    lines = _submit(cluster, settings, [*command("status"), "--json"]).stdout.splitlines()
    (status,) = [json.loads(line) for line in lines if line.startswith('{"')]
    (plan,) = status["plans"]
    return {name: plan[name] for name in ("state", "host", "attempt", "waves_done", "waves", "cells_done", "cells")}


def _submit(cluster: RayMachines, settings: str, run: list[str]) -> Any:
    done = cluster.submit(run, {"deployment.yaml": settings}, timeout_s=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done
