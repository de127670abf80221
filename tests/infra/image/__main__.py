"""Build the images for CPUs, then encode and search in them as a user without rights.

    make image-test
    python -m tests.infra.image [--folder FOLDER] [--keep] [--twice]

Prints what it checks and one line ``RESULT {json}``: ``built`` targets; for each its size above the base in MB (10^6
bytes), and compressed. Exit codes: 0 done, 1 a check failed. Where images cannot be built, it says why and ends with 0.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.infra.image.builder import ROOT, Builder, missing
from tests.infra.image.checks import check_jobs, check_search, check_static
from tests.infra.image.container import Container
from tests.infra.image.corpus import make_deployment

TARGETS = ("search", "jobs")


def main() -> int:
    """Build, measure and run; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.infra.image")
    parser.add_argument("--folder", type=Path, default=ROOT / ".cache" / "image", help="base, packages, storage")
    parser.add_argument("--keep", action="store_true", help="keep the built images")
    parser.add_argument("--twice", action="store_true", help="build the target search again and compare")
    given = parser.parse_args()
    if reason := missing():
        sys.stdout.write(f"skipped: {reason}\nRESULT {json.dumps({'built': 0, 'skipped': reason})}\n")
        return 0
    builder = Builder(given.folder)
    result: dict[str, Any] = {"built": 0}
    try:
        base = builder.make_base()
        for lock in ("build", *TARGETS):
            builder.download(lock)
        with builder.mounted(base) as root:
            plain = size(root)
        with tempfile.TemporaryDirectory(prefix="lsr-image-") as scratch:
            data = make_deployment(Path(scratch))
            for target in reversed(TARGETS):  # the index that is searched comes from the jobs
                figures = try_target(builder, target, base, plain, data)
                result |= {f"{target}_{name}": value for name, value in figures.items()}
                result["built"] += 1
        if given.twice:
            result["search_equal"] = int(equal_builds(builder, base))
    finally:
        if not given.keep:
            builder.clean()
    sys.stdout.write(f"RESULT {json.dumps(result)}\n")
    return 0


def try_target(builder: Builder, target: str, base: str, plain: int, data: Path) -> dict[str, Any]:
    """Build a target and run its checks; returns its figures."""
    start = time.perf_counter()
    image = builder.build(target, base, revision())
    seconds = time.perf_counter() - start
    config = builder.inspect(image)
    with builder.mounted(image) as root:
        above = size(root) - plain
        sys.stdout.write(f"{target}: built in {seconds:.0f} s, {above / 1e6:.0f} MB above the base\n")
        check_static(root, config)
        container = Container(root, config["config"], data)
        figures = (check_jobs if target == "jobs" else check_search)(container)
        packed = compressed(root / "opt" / "lsr-prod")
    sys.stdout.flush()
    return {"mb": round(above / 1e6, 1), "compressed_mb": round(packed / 1e6, 1), "build_s": round(seconds), **figures}


def size(root: Path) -> int:
    """Return the bytes of all files below a folder; a file with several names counts once."""
    counted = subprocess.run(
        ["du", "--summarize", "--apparent-size", "--block-size=1", "--one-file-system", str(root)],
        capture_output=True,
        text=True,
        check=True,
    )
    return int(counted.stdout.split()[0])


def compressed(folder: Path) -> int:
    """Return the bytes of a folder as a layer that a registry stores: a tar with gzip."""
    packed = subprocess.run(
        ["sh", "-c", 'tar --create --directory "$0" . | gzip | wc --bytes', str(folder)],
        capture_output=True,
        text=True,
        check=True,
    )
    return int(packed.stdout)


def equal_builds(builder: Builder, base: str) -> bool:
    """Return whether a second build of the target search makes the layers of the first, which is there."""
    first, second = "localhost/lsr-prod/search:latest", builder.build("search", base, revision(), tag="again")
    return bool(builder.inspect(first)["rootfs"] == builder.inspect(second)["rootfs"])


def revision() -> str:
    """Return the commit that is built."""
    shown = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return shown.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
