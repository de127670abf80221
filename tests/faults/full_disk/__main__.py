"""Let every write of every job fail in turn; ``python -m tests.faults --parts disk`` runs it.

    python -m tests.faults.full_disk [--seed 7] [--share 10] [--jobs model index search]

Needs the right to mount. Jobs run in forks of this process, which has imported everything and is started again with
the library that fails calls. Ends with one line ``RESULT {json}``; exit code 1 if anything was found.
"""

import argparse
import os
import sys
import tempfile
from functools import partial
from pathlib import Path

from tests.faults.full_disk.preload import compile_library


def main() -> int:
    """Run the campaign."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument(
        "--share", type=int, default=1, help="take one of this many points; above 1, without export and jobs on Ray"
    )
    parser.add_argument("--jobs", nargs="+", metavar="NAME", help="only these jobs")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lsr-full-disk-", ignore_cleanup_errors=True) as name:
        if "LD_PRELOAD" not in os.environ:
            return _restart(compile_library(Path(name)))
        return _run(given, Path(name))


def _restart(library: Path) -> int:
    import subprocess

    command = [sys.executable, "-m", "tests.faults.full_disk", *sys.argv[1:]]
    return subprocess.run(command, env={**os.environ, "LD_PRELOAD": str(library)}, check=False).returncode


def _run(given: argparse.Namespace, folder: Path) -> int:
    _import_everything()
    from lsr_prod.jobs.terminal.shell import print_result
    from tests.faults.full_disk.attempt import forked
    from tests.faults.full_disk.campaign import COUNTS, Campaign
    from tests.faults.full_disk.disk import SmallDisk
    from tests.faults.full_disk.jobs import JOBS, prepare
    from tests.objectstore.endpoint import s3_endpoint

    for name in ("given", "notes"):
        (folder / name).mkdir()
    disk = SmallDisk(folder / "disk")
    try:
        with s3_endpoint() as options:
            campaign = Campaign(folder / "given", disk, folder / "notes", given.seed, given.share)
            output = folder / "notes" / "prepared"
            if forked(partial(prepare, folder / "given", disk.folder / "world", options), output):
                raise RuntimeError(output.read_text())
            for job in JOBS:
                if job.name in given.jobs if given.jobs else given.share == 1 or not (job.on_ray or job.share > 1):
                    campaign.run(job)
            if not given.jobs or "follow" in given.jobs:
                campaign.follow(options)
    finally:
        disk.close()
    counts = {name: campaign.found.counts[name] for name in COUNTS}
    print_result({**counts, "full_disk_jobs": dict(campaign.found.points)})
    return int(any(counts[name] for name in COUNTS[1:]))


def _import_everything() -> None:
    """Import what the jobs import, so that forks are quick; nothing starts a thread."""
    import importlib

    for name in ("lsr_prod", "deltalake", "obstore", "onnxruntime", "tantivy", "torch", "transformers"):
        importlib.import_module(name)


if __name__ == "__main__":
    raise SystemExit(main())
