"""Render all overlays, validate them, and plant faults that must be found: ``python -m tests.infra.manifests``.

``[--mutations 30] [--seed 1]``. Prints one line ``RESULT {json}``: ``overlays``, ``problems``, ``mutations`` and
``missed``; the exit code is 1 if a manifest has a problem or a fault was missed. Without the schemas of KubeRay beside
the project it says so and ends with 0.
"""

import argparse
import json
import os
import sys
import time

from tests.infra.manifests.checks import problems
from tests.infra.manifests.mutations import KINDS, mutate
from tests.infra.manifests.render import ROOT, render, render_with_kubectl
from tests.infra.manifests.schemas import KUBERAY, has_kuberay_schemas

OVERLAYS = ("dev", "production-cpu", "production-gpu")


def main() -> int:
    """Run the campaign; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.infra.manifests")
    parser.add_argument("--mutations", type=int, default=30)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("LSR_INFRA_SEED", "1")))
    given = parser.parse_args()
    if not has_kuberay_schemas():
        print(f"skipped: there is no {KUBERAY}\nRESULT {json.dumps({'overlays': 0, 'skipped': str(KUBERAY)})}")
        return 0
    began = time.monotonic()
    rendered = {name: render(ROOT / "overlays" / name) for name in OVERLAYS}
    found = [f"{name}: {problem}" for name, manifests in rendered.items() for problem in problems(manifests)]
    with_kubectl = [name for name in OVERLAYS if render_with_kubectl(ROOT / "overlays" / name) is not None]
    for problem in found:
        print(problem)
    planted = missed = 0
    number = given.seed * 1000
    while planted < given.mutations:
        mutation = mutate(rendered[OVERLAYS[number % len(OVERLAYS)]], KINDS[planted % len(KINDS)], number)
        number += 1
        if mutation is None:
            continue
        planted += 1
        answer = problems(mutation.manifests)
        missed += not answer
        print(f"{'MISSED' if not answer else 'found '}  {mutation.kind}: {mutation.where}: {(answer or [''])[0][:120]}")
    figures = {
        "overlays": len(rendered),
        "manifests": sum(map(len, rendered.values())),
        "rendered_with_kubectl": len(with_kubectl),
        "problems": len(found),
        "mutations": planted,
        "missed": missed,
        "seed": given.seed,
        "seconds": round(time.monotonic() - began, 1),
    }
    print(f"RESULT {json.dumps(figures)}")
    return int(bool(found) or missed > 0)


if __name__ == "__main__":
    sys.exit(main())
