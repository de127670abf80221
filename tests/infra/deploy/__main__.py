"""Run every command of docs/deploy.md as a new platform engineer would.

    make deploy-test
    python -m tests.infra.deploy [--only kubernetes|machines|one] [--folder FOLDER] [--packages FOLDER]

Needs root on Linux, and the packages of the locks (downloaded once). Prints one line ``RESULT {json}``: ``ran``
sections, and the commands and seconds of each. Exit codes: 0 done, 1 a command failed. A section that this computer
cannot run is skipped with its reason.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.cluster.namespaces import ROOT, missing
from tests.infra.deploy.kubernetes import kubernetes_missing, run_kubernetes
from tests.infra.deploy.machines import run_cluster, run_one

SECTIONS = ("kubernetes", "one", "machines")


def main() -> int:
    """Run the sections; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.infra.deploy")
    parser.add_argument("--only", choices=SECTIONS, help="one section; default: all")
    parser.add_argument("--folder", type=Path, help="folder for logs; default: a new one")
    parser.add_argument("--packages", type=Path, default=ROOT / ".cache" / "image" / "packages")
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="lsr-deploy-"))
    result: dict[str, Any] = {"ran": 0}
    for name in [given.only] if given.only else SECTIONS:
        if reason := kubernetes_missing() if name == "kubernetes" else missing():
            sys.stdout.write(f"{name}: skipped: {reason}\n")
            result[f"{name}_skipped"] = reason
            continue
        own = folder / name
        own.mkdir(parents=True)
        figures = run_kubernetes(own) if name == "kubernetes" else _run_machines(name, given.packages.resolve(), own)
        sys.stdout.write(f"{name}: {figures}\n")
        sys.stdout.flush()
        result |= {f"{name}_{key}": value for key, value in figures.items()}
        result["ran"] += 1
    sys.stdout.write(f"RESULT {json.dumps(result)}\n")
    return 0


def _run_machines(name: str, packages: Path, folder: Path) -> dict[str, Any]:
    _download(packages)
    with tempfile.TemporaryDirectory(dir=packages.parent, prefix="opt-") as opt:
        Path(opt).chmod(0o755)  # that of /opt
        return {"one": run_one, "machines": run_cluster}[name](packages, Path(opt), folder)


def _download(packages: Path) -> None:
    """Download the packages of the locks; what is there already is only verified."""
    pip = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "-qq",
        "--disable-pip-version-check",
        "--no-deps",
        "--require-hashes",
    ]
    for lock in ("build", "jobs"):
        place = ["--only-binary", ":all:", "--find-links", str(packages), "--dest", str(packages)]
        subprocess.run([*pip, *place, "-r", str(ROOT / "requirements" / f"{lock}.txt")], check=True)


if __name__ == "__main__":
    sys.exit(main())
